/* Records of what a run has done, in metrics.jsonl: one function for each kind that a run writes on its way
 * (checkpoints: saver.c).
 * Every rank may call them; rank 0 writes. A new kind is a function here and a line in launch/doc/training.md. */
#pragma once

#include "launch/train/training_impl.h"

/* The mean of the steps since the last such record, which ends at the step just done. */
void oct_record_steps(oct_training *run, oct_phase phase);
/* The step just done was skipped, for numbers that are not finite; the log says so too. */
void oct_record_skip(oct_training *run, oct_phase phase);
/* A phase that has ended: its steps, images and time, as far as this process took them. */
void oct_record_phase(oct_training *run, oct_phase phase);
/* Scores of the model over the test data, which the log has too. images_per_s: 0 when it was not measured. */
void oct_record_evaluation(oct_training *run, oct_phase phase, const oct_scores *scores,
                           double images_per_s);
/* The scale of each layer's output, of a prepared model; nothing of another one. */
void oct_record_scales(oct_training *run, oct_phase phase);
/* Samples of the test data for TensorBoard, where it is asked for, before the first step. */
void oct_record_samples(oct_training *run);
/* The weights as TensorBoard's histograms, where it is asked for: of some evaluations of a phase, its last among
 * them. */
void oct_record_weights(oct_training *run);
/* How many test images of each class the int8 model takes for each: counts of classes x classes, a row for each class
 * that is right. */
void oct_record_confusion(oct_training *run, int64_t classes, const double *counts);
/* An evaluation of QAT that is the best so far by evaluate.best; and a phase that has ended by evaluate.patience. */
void oct_record_best(oct_training *run, oct_phase phase);
void oct_record_end(oct_training *run, oct_phase phase);
/* The figures of the best evaluation of QAT, for a record; NULL: there is none. */
json_t *oct_best_json(const oct_training *run);
