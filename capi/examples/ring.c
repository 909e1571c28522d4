/* A ring of trace data in a C program: commit, patch, overwrite, read, account. Prints what it finds.
 *
 *   cc ring.c $(pkg-config --cflags --libs watershed) -o ring && ./ring
 */
#include <stdio.h>
#include <string.h>

#include "watershed.h"

static const ws_identity kMe = {1000, 4242, 0};

/* One chunk with one packet: a one-byte size, then the bytes. */
static void commit(ws_buffer *buffer, uint16_t writer, uint32_t chunk, uint8_t flags, const char *text) {
    uint8_t bytes[128];
    size_t size = strlen(text);
    bytes[0] = (uint8_t)size;
    memcpy(bytes + 1, text, size);
    if (!ws_buffer_copy_chunk(buffer, 1, kMe, writer, chunk, 1, flags, true, bytes, size + 1))
        printf("refused: %s\n", text);
}

static void print_packets(const char *title, ws_buffer *buffer) {
    ws_packet packet;
    printf("%s:", title);
    ws_buffer_begin_read(buffer);
    while (ws_buffer_read_next(buffer, &packet)) {
        printf(" %u/%u ", (unsigned)packet.producer_id, (unsigned)packet.writer_id);
        for (size_t i = 0; i < packet.num_slices; i++)
            printf("%s%.*s", i ? "+" : "", (int)packet.slices[i].size_bytes, (const char *)packet.slices[i].data);
        if (packet.loss_reasons & WS_LOSS_OVERWRITE)
            printf(" (after overwritten data)");
    }
    printf("\n");
}

/* Called with each packet that nobody read and that is about to go. */
static bool count_overwritten(void *user, const ws_packet *packet) {
    *(unsigned *)user += packet->num_slices > 0;
    return false;
}

int main(void) {
    ws_buffer *buffer = ws_buffer_create(4096, WS_RING);
    if (!buffer)
        return 1;
    printf("%zu bytes, has data: %d\n", ws_buffer_size(buffer), ws_buffer_has_data(buffer));

    /* Two writers; a packet of the second one spans two chunks and waits for a patch. */
    commit(buffer, 1, 0, 0, "hello");
    commit(buffer, 2, 0, WS_CHUNK_LAST_CONTINUES | WS_CHUNK_NEEDS_PATCHING, "....-begins");
    commit(buffer, 2, 1, WS_CHUNK_FIRST_CONTINUES, "ends");
    commit(buffer, 1, 1, 0, "world");
    print_packets("before the patch", buffer);

    ws_patch patch = {1, {'d', 'o', 'n', 'e'}};
    printf("patched: %d\n", ws_buffer_try_patch(buffer, 1, 2, 0, &patch, 1, false));
    print_packets("after the patch", buffer);

    /* More than fits: the oldest packets go. */
    unsigned overwritten = 0;
    ws_buffer_set_overwrite_sink(buffer, count_overwritten, &overwritten);
    for (uint32_t chunk = 2; chunk < 202; chunk++) {
        char text[16];
        snprintf(text, sizeof text, "packet %03u", (unsigned)chunk);
        commit(buffer, 1, chunk, 0, text);
    }
    ws_buffer *copy = ws_buffer_clone_read_only(buffer);
    ws_packet first;
    ws_buffer_begin_read(copy);
    if (ws_buffer_read_next(copy, &first))
        printf("oldest in the copy: %.*s, loss reasons %u\n", (int)first.slices[0].size_bytes,
               (const char *)first.slices[0].data, (unsigned)first.loss_reasons);
    printf("overwritten: %u\n", overwritten);
    ws_buffer_destroy(copy);

    ws_stats stats;
    ws_ledger ledger;
    ws_buffer_stats(buffer, &stats);
    ws_buffer_ledger(buffer, &ledger);
    printf("chunks: %llu written, %llu read, %llu overwritten\n", (unsigned long long)stats.chunks_written,
           (unsigned long long)stats.chunks_read, (unsigned long long)stats.chunks_overwritten);
    printf("every chunk is accounted for: %d\n", ledger.written[0] == ledger.read[0] + ledger.overwritten[0] +
                                                      ledger.empty[0] + ledger.damaged[0] + ledger.listed[0]);
    ws_buffer_destroy(buffer);
    return 0;
}
