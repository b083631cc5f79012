/* What every function of Octet returns, the sentences of a failure, and the version.
 *
 * A function that can fail returns oct_status and gives its results through pointers. A failure has one or more
 * sentences for people, kept for each thread until its next failure:
 *
 *     if (oct_net_open(&net, path, NULL) != OCT_OK) puts(oct_error_message(0));
 *
 * No function prints, ends the process, or changes signals or the environment. A wrong argument, NULL among them, gives
 * OCT_USAGE.
 */
#ifndef OCTET_STATUS_H
#define OCTET_STATUS_H

#include <octet/version.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define OCT_BEGIN_DECLS extern "C" {
#define OCT_END_DECLS }
#else
#define OCT_BEGIN_DECLS
#define OCT_END_DECLS
#endif
#define OCT_API __attribute__((visibility("default")))
#define OCT_NODISCARD __attribute__((warn_unused_result))
/* The same of a type: compilers warn where a function's result of it is not used. */
#if defined(__clang__)
#define OCT_NODISCARD_TYPE OCT_NODISCARD
#elif __GNUC__ >= 10
#define OCT_NODISCARD_TYPE [[nodiscard]]
#else
#define OCT_NODISCARD_TYPE
#endif
#define OCT_PRINTF(text, first) __attribute__((format(printf, text, first)))

OCT_BEGIN_DECLS

__extension__ typedef enum OCT_NODISCARD_TYPE oct_status {
    OCT_OK,       /* done */
    OCT_MISMATCH, /* done, and two things differ that should be the same */
    OCT_USAGE,    /* an argument, an option or a recipe is wrong */
    OCT_DATA,     /* a file is missing, damaged or not what it should be */
    OCT_PREPARE,  /* the network cannot be prepared for this target */
    OCT_NUMERIC,  /* training failed numerically */
    OCT_LOST,     /* a rank is lost, stuck or diverged */
    OCT_RESOURCE, /* the disk is full, memory is out or a permission is missing */
    OCT_DEFECT,   /* a defect in Octet */
    OCT_STOPPED,  /* stopped as requested */
    OCT_PEER      /* another rank failed first, and has the sentence */
} oct_status;

/* Sentences of the last failure of this thread, and each of them; valid until the next failure of the thread. "" beyond
 * the last. */
OCT_API size_t oct_error_count(void);
OCT_API const char *oct_error_message(size_t i);
/* Starts a failure with one sentence and returns `code`: for modules and plug-ins of one's own. */
OCT_API oct_status oct_fail(oct_status code, const char *format, ...) OCT_PRINTF(2, 3);

/* "0.1.0": of the library; OCT_VERSION is that of the headers. */
OCT_API const char *oct_version(void);

/* Each object of a program refers to this name, such as oct_headers_0_1, so that neither a program links nor a plug-in
 * loads whose headers are of another minor version than the library. */
extern OCT_API const char OCT_HEADERS;
#ifndef OCT_OWN_BUILD
#if defined(__has_attribute)
#if __has_attribute(retain)
__attribute__((retain)) /* with --gc-sections, too */
#endif
#endif
__attribute__((used)) static const char *const oct_headers = &OCT_HEADERS;
#endif

/* Forwards the failure of a call. */
#define OCT_TRY(call)                                                                              \
    do {                                                                                           \
        oct_status oct_try_ = (call);                                                              \
        if (oct_try_ != OCT_OK) return oct_try_;                                                   \
    } while (0)

OCT_END_DECLS

#endif
