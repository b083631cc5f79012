#!/usr/bin/python3
"""Writes task_golden.h beside this file: losses and gradients as PyTorch computes them, and metrics by their
definitions, for tests/core/test_loss.c and test_metric.c.

usage: make_task_golden.py && clang-format-14 -i task_golden.h   (needs Debian's python3-torch)

Rows of outputs are stored one behind the other, of maps as (N, h, w, K).
"""
import os
import torch
import torch.nn.functional as F

torch.manual_seed(12)
torch.set_num_threads(1)
arrays = []


def put(name, t):
    arrays.append((name, [float(v) for v in t.detach().contiguous().flatten()]))


ROWS, K = 6, 5
labels = torch.tensor([3, 0, 2, 2, 1, 4])
weights = torch.tensor([0.5, 2.0, 1.0, 3.0, 0.25])
positive = torch.tensor([1.0, 4.0, 0.5, 2.0, 3.0])
soft = torch.softmax(torch.randn(ROWS, K), 1)
hard = (torch.rand(ROWS, K) > 0.6).float()
wanted = torch.randn(ROWS, K) * 2
teacher = torch.randn(ROWS, K) * 3
y = torch.randn(ROWS, K) * 2


def put_loss(name, loss, outputs):
    z = outputs.clone().requires_grad_()
    value = loss(z)
    value.backward()
    put(f"{name}_value", value.reshape(1))
    put(f"{name}_grad", z.grad)


def divergence(z, t):
    return F.kl_div(F.log_softmax(z / t, 1), F.softmax(teacher / t, 1), reduction="batchmean") * t * t


for name in ("labels", "weights", "positive", "soft", "hard", "wanted", "teacher", "y"):
    put(name, globals()[name])
put_loss("ce_weights", lambda z: F.cross_entropy(z, labels, weights), y)
put_loss("ce_weights_smooth", lambda z: F.cross_entropy(z, labels, weights, label_smoothing=0.2), y)
put_loss("ce_weights_soft", lambda z: F.cross_entropy(z, soft, weights, label_smoothing=0.2), y)
put_loss("bce", lambda z: F.binary_cross_entropy_with_logits(z, hard), y)
put_loss("bce_positive", lambda z: F.binary_cross_entropy_with_logits(z, hard, pos_weight=positive), y)
put_loss("mae", lambda z: F.l1_loss(z, wanted), y)
put_loss("huber", lambda z: F.huber_loss(z, wanted, delta=0.7), y)
put_loss("distill", lambda z: 0.4 * F.cross_entropy(z, labels) + 0.6 * divergence(z, 3), y)
put_loss("distill_alone", lambda z: divergence(z, 3), y)
put_loss("distill_soft", lambda z: 0.4 * F.cross_entropy(z, soft, label_smoothing=0.1) + 0.6 * divergence(z, 2), y)

maps = torch.randn(2, 2, 3, K) * 2  # (N, h, w, K)
map_labels = torch.tensor([[[0, 255, 4], [1, 2, 255]], [[3, 3, 255], [0, 1, 2]]])
put("maps", maps)
put("map_labels", map_labels)
put_loss("ce_map", lambda z: F.cross_entropy(z.permute(0, 3, 1, 2), map_labels, weights, ignore_index=255), maps)

# Metrics, by their definitions. Scores are rounded so that some are equal.
N, C = 40, 4
scores = torch.round(torch.randn(N, C) * 4) / 4
classes = torch.randint(0, C - 1, (N,))  # of the last class there is no row
several = (torch.rand(N, C) > 0.7).float()
told = scores.argmax(1)


def per_class(hits, told_rows, rows):
    precision = hits / told_rows if told_rows else 0.0
    recall = hits / rows if rows else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return precision, recall, f1


def put_means(prefix, figures):
    for at, name in enumerate(("precision", "recall", "f1")):
        put(f"{prefix}{name}", torch.tensor([100 * sum(f[at] for f in figures) / len(figures)]))


def auc_of(score, is_positive):
    high, low = score[is_positive], score[~is_positive]
    pairs = sum((h > l) + 0.5 * (h == l) for h in high.tolist() for l in low.tolist())
    return pairs / (len(high) * len(low))


def ap_of(score, is_positive):
    total, before = 0.0, 0.0
    for threshold in sorted(set(score.tolist()), reverse=True):
        above = score >= threshold
        recall = (above & is_positive).sum().item() / is_positive.sum().item()
        total += (recall - before) * (above & is_positive).sum().item() / above.sum().item()
        before = recall
    return 100 * total


put("scores", scores)
put("classes", classes)
put("several", several)
figures, ious, recalls = [], [], []
for k in range(C):
    hits, told_rows, rows = ((told == k) & (classes == k)).sum().item(), (told == k).sum().item(), (classes == k).sum().item()
    if told_rows + rows:
        figures.append(per_class(hits, told_rows, rows))
        ious.append(hits / (told_rows + rows - hits))
    if rows:
        recalls.append(hits / rows)
put_means("", figures)
put("miou", torch.tensor([100 * sum(ious) / len(ious)]))
put("balanced", torch.tensor([100 * sum(recalls) / len(recalls)]))
put_means("several_", [per_class(((scores[:, k] > 0) & (several[:, k] > 0)).sum().item(), (scores[:, k] > 0).sum().item(),
                                 several[:, k].sum().item()) for k in range(C)])
put("several_auc", torch.tensor([sum(auc_of(scores[:, k], several[:, k] > 0) for k in range(C)) / C]))
put("several_ap", torch.tensor([sum(ap_of(scores[:, k], several[:, k] > 0) for k in range(C)) / C]))
logits = torch.randn(N, C) * 2
put("logits", logits)
told_by = F.softmax(logits.double(), 1)
put("auc", torch.tensor([sum(auc_of(told_by[:, k], classes == k) for k in range(C - 1)) / (C - 1)]))
put("mae_of_values", torch.tensor([(scores - several).abs().mean().item()]))
put("rmse_of_values", torch.tensor([((scores - several) ** 2).mean().sqrt().item()]))
error = ((scores - several) ** 2).mean(1)
put("anomaly_auc", torch.tensor([auc_of(error, classes > 0)]))

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "task_golden.h"), "w") as f:
    f.write(f"/* What PyTorch {torch.__version__} computes. Made by make_task_golden.py, never by hand. */\n")
    f.write("#pragma once\n\n")
    for name, values in arrays:
        texts = ["%.9g" % v for v in values]
        texts = [(t if any(c in t for c in ".en") else t + ".0") + "F" for t in texts]
        f.write(f"static const float golden_{name}[{len(values)}] = {{" + ", ".join(texts) + "};\n")
