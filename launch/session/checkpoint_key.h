/* A key of a recipe may name a checkpoint of another run. Only the digest of the file is part of the recipe's
 * identity, so the file may move, and a resume with another one is refused. */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "launch/session/session.h"

typedef struct oct_checkpoint_key {
    const char *name, *digest_name; /* of the two keys, for messages */
    const char *path;               /* "": none is named */
    char **digest;                  /* SHA-256 of the file; "": not known yet */
    const char *takes;              /* for messages: "a checkpoint or a run folder" */
} oct_checkpoint_key;

/* Opens what the key names; bytes NULL when it names nothing. Of a run folder the end of its float phase, or
 * its newest checkpoint. */
oct_status oct_checkpoint_key_open(const oct_checkpoint_key *key, bool newest,
                                   oct_checkpoint *checkpoint) OCT_NODISCARD;
/* Sets the digest to that of the checkpoint; OCT_USAGE when it is of another one. */
oct_status oct_checkpoint_key_digest(const oct_checkpoint_key *key,
                                     const oct_checkpoint *checkpoint) OCT_NODISCARD;
/* The same of a file whose digest is known. */
oct_status oct_checkpoint_key_take(const oct_checkpoint_key *key, const char *path,
                                   const char *hex) OCT_NODISCARD;
/* Collective: rank 0 has opened it, as its status says, and taken the digest; all ranks have it then. */
oct_status oct_checkpoint_key_share(const oct_checkpoint_key *key, oct_session *session,
                                    oct_status opened, oct_checkpoint *checkpoint) OCT_NODISCARD;
