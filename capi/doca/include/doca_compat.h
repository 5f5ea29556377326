/* Ferroce: how functions of these headers are marked. */
#ifndef DOCA_COMPAT_H_
#define DOCA_COMPAT_H_

#define DOCA_USED __attribute__((used))

/* A function that stays as it is. */
#define DOCA_STABLE __attribute__((visibility("default"))) DOCA_USED

/* A function that may change: calls warn unless the program defines DOCA_ALLOW_EXPERIMENTAL_API. */
#ifdef DOCA_ALLOW_EXPERIMENTAL_API
#define DOCA_EXPERIMENTAL DOCA_STABLE
#else
#define DOCA_EXPERIMENTAL \
	__attribute__((deprecated("define DOCA_ALLOW_EXPERIMENTAL_API to use it"))) DOCA_STABLE
#endif

#ifdef __cplusplus
#define FERROCE_BEGIN_DECLS extern "C" {
#define FERROCE_END_DECLS }
#else
#define FERROCE_BEGIN_DECLS
#define FERROCE_END_DECLS
#endif

#endif
