/* Ranks: processes that train one network together, over MPI, which Octet shares with the program.
 *
 * MPI that is initialized is used and never finalized. Otherwise, where mpirun or srun has started the process, the first
 * oct_comm_open initializes it; a program that calls MPI_Init itself does so before that. What Octet began ends when the
 * program exits, or by the program's own MPI_Finalize, since MPI cannot start twice; but not where a rank is lost, or the
 * exit status is not 0 and a communicator is open, so that mpirun ends the other ranks. Communicators are closed before
 * MPI_Finalize; one that is open then gives OCT_USAGE. Octet sends on duplicates alone, which return
 * errors; other communicators, their error handlers and ranks that do not take part are not touched.
 *
 * Threads: all calls on a communicator, and those of a training on it, come from one thread at a time: with
 * MPI_THREAD_SINGLE or MPI_THREAD_FUNNELED from the main thread, else OCT_USAGE. Octet's other threads never call MPI, so
 * MPI_THREAD_SINGLE is enough. Where other threads of the program use MPI meanwhile, it takes MPI_THREAD_MULTIPLE.
 *
 * A rank that does not answer within the deadline, and one that MPI knows to be lost, give OCT_LOST and a sentence from
 * the call that waited for it, and from every later one on this communicator; the process lives, and messages that come
 * later are not written to memory of the program. Where MPI itself waits, Octet cannot end that: in MPI_Init, and in
 * MPI_Finalize, for which a lost rank never comes, so that such a program ends by MPI_Abort. A rank that did not call
 * oct_comm_open has left out a collective of MPI, and the others can use none on that communicator of the program.
 *
 * Open and close are collective: all ranks of the communicator call them, in the same order.
 */
#ifndef OCTET_COMM_H
#define OCTET_COMM_H

#include <octet/status.h>

OCT_BEGIN_DECLS

typedef struct oct_comm oct_comm;

/* Opens a communicator of all processes of MPI_COMM_WORLD; without MPI and a launcher, of this process alone.
 * deadline_s: seconds that a rank waits for another before it is called lost; 0: 300. *comm is NULL after a failure:
 * OCT_USAGE where MPI is finalized, or where srun has started several processes that cannot find each other. Any number
 * may be open, and be opened again. */
OCT_API oct_status oct_comm_open(oct_comm **comm, double deadline_s);
/* The same for a communicator of the program, such as a part of MPI_COMM_WORLD, which stays its own and may be freed.
 * fortran_handle: MPI_Comm_c2f of it. OCT_USAGE where MPI is not initialized, or the handle is MPI_COMM_NULL, an
 * intercommunicator, or none that MPI knows. */
OCT_API oct_status oct_comm_open_mpi(oct_comm **comm, int fortran_handle, double deadline_s);
/* Waits for the other ranks to come here, too, unless one is lost; frees the communicator and sets *comm to NULL. NULL is
 * allowed. Trainings on it are destroyed before. */
OCT_API void oct_comm_close(oct_comm **comm);
/* This process's number, from 0, and how many there are; of NULL, which is this process alone, 0 and 1. */
OCT_API int oct_comm_rank(const oct_comm *comm);
OCT_API int oct_comm_size(const oct_comm *comm);

OCT_END_DECLS

#endif
