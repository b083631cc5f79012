/* An MPI program, half of whose ranks train a network with Octet while the others do work of their own. */
#include <mpi.h>
#include <octet/train.h>
#include <stdio.h>

enum { N = 64, SIDE = 8, CLASSES = 4 };
static float images[N * SIDE * SIDE];
static int32_t labels[N];
static oct_comm *comm;
static oct_module *net;
static oct_training *training;
static oct_model *model;

static oct_status build(void)
{
    const oct_conv_bn stem = {.in = 1, .out = 16, .kernel = 3, .stride = 2, .relu = true};
    oct_module *pool, *head;
    OCT_TRY(oct_sequential_create(&net));
    OCT_TRY(oct_append_conv_bn(net, &stem));
    OCT_TRY(oct_global_avg_pool_create(&pool));
    OCT_TRY(oct_sequential_append(net, &pool));
    OCT_TRY(oct_linear_create(&head, 16, CLASSES, true));
    return oct_sequential_append(net, &head);
}

/* All ranks of `half` have the data, and get the same bits, whatever their number. */
static oct_status train(MPI_Comm half)
{
    const oct_data data = oct_data_of(N, images, labels);
    double right;
    OCT_TRY(oct_comm_open_mpi(&comm, MPI_Comm_c2f(half), 60));
    const oct_training_options options = {.input = {{SIDE, SIDE, 1}}, .batch = N, .comm = comm};
    OCT_TRY(build());
    OCT_TRY(oct_training_create(&training, &net, &options));
    OCT_TRY(oct_training_fit(training, &data, 60, 0.05, NULL, &right));
    OCT_TRY(oct_quantize(training, &data, &(oct_quantize_options){.epochs = 20}, &model));
    if (oct_comm_rank(comm) != 0) return OCT_OK;
    printf("%d ranks have trained: %g %%\n", oct_comm_size(comm), right);
    return oct_model_save("stripes.int8.h5", model);
}

int main(int argc, char **argv)
{
    int rank, failed = 0;
    MPI_Comm half;
    for (int i = 0; i < N * SIDE * SIDE; i++) { /* noise; image k has bright rows k, k + 4, ... */
        labels[i / SIDE / SIDE] = i / SIDE / SIDE % CLASSES;
        images[i] = (float)(i * 7919 % 101) / 101 + (i / SIDE % CLASSES == labels[i / SIDE / SIDE]);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    if (rank % 2 == 0) failed = train(half);
    if (failed) puts(oct_error_message(0));
    oct_model_destroy(&model), oct_training_destroy(&training), oct_module_destroy(&net);
    oct_comm_close(&comm);
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD); /* still its own */
    MPI_Comm_free(&half);
    return MPI_Finalize() != MPI_SUCCESS || failed;
}
