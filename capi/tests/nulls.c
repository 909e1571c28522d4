/* Every function with NULL in every place: neutral answers, no crash. */
#include <stdio.h>
#include <string.h>

#include "watershed.h"

static int failures;

#define CHECK(condition)                                     \
    do {                                                     \
        if (!(condition)) {                                  \
            printf("line %d: %s\n", __LINE__, #condition);   \
            failures++;                                      \
        }                                                    \
    } while (0)

static bool all_zero(const void *memory, size_t size) {
    const unsigned char *bytes = memory;
    for (size_t i = 0; i < size; i++)
        if (bytes[i])
            return false;
    return true;
}

static void without_a_buffer(void) {
    ws_identity me = {1, 2, 3};
    uint8_t bytes[2] = {1, 'x'};
    ws_patch patch = {0, {0, 0, 0, 0}};
    ws_packet packet;
    ws_stats stats;
    ws_ledger ledger;
    ws_writer_stats writer;

    ws_buffer_destroy(NULL);
    CHECK(!ws_buffer_copy_chunk(NULL, 1, me, 1, 0, 1, 0, true, bytes, 2));
    CHECK(!ws_buffer_try_patch(NULL, 1, 1, 0, &patch, 1, false));
    ws_buffer_end_writer(NULL, 1, 1);
    ws_buffer_end_producer(NULL, 1);
    ws_buffer_begin_read(NULL);
    ws_buffer_set_read_only(NULL);
    ws_buffer_set_overwrite_sink(NULL, NULL, NULL);

    memset(&packet, 0xff, sizeof packet);
    CHECK(!ws_buffer_read_next(NULL, &packet));
    CHECK(packet.slices == NULL && packet.num_slices == 0 && packet.loss_reasons == 0);
    memset(&stats, 0xff, sizeof stats);
    ws_buffer_stats(NULL, &stats);
    CHECK(all_zero(&stats, sizeof stats));
    memset(&ledger, 0xff, sizeof ledger);
    ws_buffer_ledger(NULL, &ledger);
    CHECK(all_zero(&ledger, sizeof ledger));

    CHECK(ws_buffer_clone_read_only(NULL) == NULL);
    CHECK(ws_buffer_writer_stats(NULL, &writer, 1) == 0);
    CHECK(ws_buffer_size(NULL) == 0);
    CHECK(ws_buffer_used_size(NULL) == 0);
    CHECK(ws_buffer_write_offset(NULL) == 0);
    CHECK(ws_buffer_memory_usage(NULL) == 0);
    CHECK(ws_buffer_ring(NULL) == NULL);
    CHECK(ws_buffer_policy(NULL) == WS_RING);
    CHECK(!ws_buffer_has_data(NULL));
}

static void without_a_place_for_results(void) {
    ws_identity me = {1, 2, 3};
    uint8_t bytes[2] = {1, 'x'};
    ws_buffer *buffer = ws_buffer_create(4096, WS_DISCARD);
    ws_packet packet;

    CHECK(buffer != NULL);
    CHECK(ws_buffer_policy(buffer) == WS_DISCARD);
    CHECK(!ws_buffer_copy_chunk(buffer, 1, me, 1, 0, 1, 0, true, NULL, 2));
    CHECK(ws_buffer_copy_chunk(buffer, 1, me, 1, 0, 1, 0, true, bytes, 2));
    CHECK(!ws_buffer_try_patch(buffer, 1, 1, 0, NULL, 1, false));
    CHECK(ws_buffer_try_patch(buffer, 1, 1, 0, NULL, 0, false));
    ws_buffer_stats(buffer, NULL);
    ws_buffer_ledger(buffer, NULL);
    CHECK(ws_buffer_writer_stats(buffer, NULL, 0) == 1);
    CHECK(ws_buffer_writer_stats(buffer, NULL, 7) == 1);

    ws_buffer_begin_read(buffer);
    CHECK(!ws_buffer_read_next(buffer, NULL));
    CHECK(ws_buffer_read_next(buffer, &packet)); /* the call before consumed nothing */
    CHECK(packet.num_slices == 1 && packet.slices[0].size_bytes == 1 && packet.slices[0].data[0] == 'x');
    ws_buffer_destroy(buffer);
}

int main(void) {
    without_a_buffer();
    without_a_place_for_results();
    CHECK(ws_buffer_create(4096, (ws_policy)7) == NULL);
    CHECK(ws_version() && ws_version()[0]);
    if (!failures)
        printf("ok\n");
    return failures != 0;
}
