// The events of the suite `client`, as LTTng-UST wants them declared. Included several times by
// its macros.
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER watershed

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./tracepoints.h"

#if !defined(WATERSHED_TRACEPOINTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define WATERSHED_TRACEPOINTS_H

#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(watershed, on_instant, LTTNG_UST_TP_ARGS(), LTTNG_UST_TP_FIELDS())

LTTNG_UST_TRACEPOINT_EVENT(
    watershed, on_slice_begin, LTTNG_UST_TP_ARGS(uint64_t, number, const char *, text),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint64_t, number, number)
                            lttng_ust_field_string(text, text)))

LTTNG_UST_TRACEPOINT_EVENT(watershed, on_slice_end, LTTNG_UST_TP_ARGS(), LTTNG_UST_TP_FIELDS())

// No session enables it.
LTTNG_UST_TRACEPOINT_EVENT(
    watershed, off_instant, LTTNG_UST_TP_ARGS(uint64_t, number),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint64_t, number, number)))

#endif

#include <lttng/tracepoint-event.h>
