/* What Octet and the program octet-hdf5 say to each other over a socket. The program holds nothing but this socket:
 * it asks Octet for the bytes of the file, and may be in the hands of whoever wrote them.
 *
 * It begins with HELLO. Then one request, LIST or ARRAY, opens the file: LIST is answered by an OBJECT for each
 * group and data set and by DONE, ARRAY by one OBJECT, and from then on READ by DATA. Before an answer come any number
 * of ASK, each answered by the bytes of the file. FAILED ends the conversation. */
#pragma once

#include <stdint.h>

enum { OCT_H5_PROTOCOL = 1, OCT_H5_PATH = 1024, OCT_H5_DIMS = 4, OCT_H5_DEPTH = 32 };

typedef enum oct_h5_kind {
    OCT_H5_HELLO, /* at: OCT_H5_PROTOCOL */
    OCT_H5_LIST,  /* bytes: size of the file */
    OCT_H5_ARRAY, /* the same, and name: path of the array */
    OCT_H5_READ,  /* samples [at, at + bytes) of the array */
    OCT_H5_ASK,   /* bytes [at, at + bytes) of the file, which follow without a message */
    OCT_H5_OBJECT,
    OCT_H5_DATA, /* bytes: of the numbers, which follow */
    OCT_H5_DONE,
    OCT_H5_FAILED, /* at: oct_h5_refusal; name: of an object or a filter, or empty */
} oct_h5_kind;

/* name, sentence about the file or the object */
#define OCT_H5_REFUSALS(X)                                                                         \
    X(UNCONFINED, "")                                                                              \
    X(NO_FILE, "is not an HDF5 file, or it is damaged or cut short")                               \
    X(MISSING, "there is no such array in the file; data.images and data.labels say what the "     \
               "arrays are called (octet run: --images)")                                          \
    X(NO_ARRAY, "is a group, not an array")                                                        \
    X(LINK, "is a link of another kind than hard ones")                                            \
    X(TYPE, "holds neither integers nor floats of at most 64 bits; convert it, such as with "      \
            "numpy: array.astype('float32')")                                                      \
    X(DIMENSIONS, "has no dimension, or too many; 1 to 4 dimensions are read")                     \
    X(ELSEWHERE, "has its numbers in another file; write them into this one")                      \
    X(FILTER, "is packed by a filter that the HDF5 library here does not have; use gzip, or none") \
    X(STORAGE, "is not in one piece, as arrays of Octet do")                                       \
    X(DEEP, "has a name that is too long or nested too deep")                                      \
    X(UNREADABLE, "cannot be read: the file is damaged or cut short")

typedef enum oct_h5_refusal {
#define X(name, sentence) OCT_H5_IS_##name,
    OCT_H5_REFUSALS(X)
#undef X
} oct_h5_refusal;

typedef struct oct_h5_message {
    int64_t kind;
    int64_t at,
        bytes; /* of an object: where its numbers lie in the file in one piece, or -1; bytes of an element */
    int64_t type; /* of an element: 'u', 'i', 'f'; 'g': the object is a group */
    int64_t big;  /* the numbers in the file are big-endian */
    int64_t ndim, dim[OCT_H5_DIMS];
    int64_t rows; /* samples along a chunk; 0: there are no chunks */
    char name[OCT_H5_PATH];
} oct_h5_message;
