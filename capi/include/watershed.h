/* watershed.h: a trace buffer. Chunks go in, whole packets come out, every loss is accounted for.
 *
 * Generated from capi/src by cbindgen: do not edit.
 *
 * What holds for every function:
 * - A NULL buffer, or a NULL where a result should go, is answered with the neutral value: false, 0, NULL.
 * - Nothing is thrown. After an internal error (a bug of the library) the buffer answers every later call with the
 *   neutral value; it can still be destroyed.
 * - A call into a buffer from its own overwrite function is answered with the neutral value.
 * - A buffer may move between threads, and is used by one at a time.
 */

#ifndef WATERSHED_H
#define WATERSHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Flag of a chunk: its first packet began in an earlier chunk.
 */
#define WS_CHUNK_FIRST_CONTINUES 1

/**
 * Flag of a chunk: its last packet goes on in the next chunk.
 */
#define WS_CHUNK_LAST_CONTINUES 2

/**
 * Flag of a chunk: its last packet cannot be read before its patches came.
 */
#define WS_CHUNK_NEEDS_PATCHING 4

/**
 * Loss: is set with each of the others.
 */
#define WS_LOSS_PRESENT 1

/**
 * Loss: chunks between the previous packet and this one are missing.
 */
#define WS_LOSS_READ_GAP 2

/**
 * Loss: a chunk's bytes made no sense.
 */
#define WS_LOSS_CHUNK_CORRUPTED 4

/**
 * Loss: the end of a packet whose beginning is gone.
 */
#define WS_LOSS_ORPHAN_CONTINUATION 8

/**
 * Loss: a chunk in the middle of a packet is missing.
 */
#define WS_LOSS_REASSEMBLY_GAP 16

/**
 * Loss: a packet that goes on in the next chunk, and a next chunk that does not continue one.
 */
#define WS_LOSS_REASSEMBLY_BROKEN_CHAIN 32

/**
 * Loss: packets were overwritten before anybody read them.
 */
#define WS_LOSS_OVERWRITE 64

/**
 * Loss: the writer dropped a packet and said so.
 */
#define WS_LOSS_WRITER_ABORT 128

/**
 * Loss: the shared memory was full. Only producers set it, inside packets.
 */
#define WS_LOSS_SMB_FULL 256

/**
 * What happens when the buffer is full.
 */
typedef enum {
    /**
     * The oldest chunks are overwritten.
     */
    WS_RING = 0,
    /**
     * The first chunk that does not fit, and everything after it, is discarded.
     */
    WS_DISCARD = 1,
} ws_policy;

/**
 * A trace buffer: what a `ws_buffer *` points to. One thread at a time.
 */
typedef struct ws_buffer ws_buffer;

/**
 * Who a producer is, as its connection proved it.
 */
typedef struct {
    /**
     * User id, -1 when it is not known.
     */
    int32_t uid;
    /**
     * Process id, -1 when it is not known.
     */
    int32_t pid;
    /**
     * The machine, 0 for this one.
     */
    uint32_t machine_id;
} ws_identity;

/**
 * Four bytes that replace four bytes of a chunk that was copied before.
 */
typedef struct {
    /**
     * Where, in bytes from the start of the chunk's payload.
     */
    uint32_t offset;
    /**
     * The new bytes.
     */
    uint8_t data[4];
} ws_patch;

/**
 * What became of every record: written = read + overwritten + empty + damaged + listed, at any
 * time. In each pair the first number counts chunks, the second bytes.
 */
typedef struct {
    /**
     * Records that were made.
     */
    uint64_t written[2];
    /**
     * Erased after they were read whole.
     */
    uint64_t read[2];
    /**
     * Erased with something in them that nobody had read.
     */
    uint64_t overwritten[2];
    /**
     * Erased without ever having had a packet.
     */
    uint64_t empty[2];
    /**
     * Erased because their bytes made no sense any more.
     */
    uint64_t damaged[2];
    /**
     * In the buffer now.
     */
    uint64_t listed[2];
    /**
     * Commits that repeated a chunk that had been read already: nothing was lost by them.
     */
    uint64_t duplicate_commits;
    /**
     * Empty sequences whose memory was given up, the oldest first; a gap after that cannot be
     * noticed.
     */
    uint64_t forgotten_sequences;
} ws_ledger;

/**
 * A piece of a packet, inside the buffer's ring.
 */
typedef struct {
    /**
     * Its first byte.
     */
    const uint8_t *data;
    /**
     * Its size in bytes, never 0.
     */
    size_t size_bytes;
} ws_slice;

/**
 * One packet, whole: the bytes of its slices, one after the other.
 */
typedef struct {
    /**
     * The pieces, in order. They and their bytes stay valid until the next call that writes:
     * copy_chunk, try_patch, destroy. In an overwrite function: until it returns.
     */
    const ws_slice *slices;
    /**
     * How many pieces, at least 1.
     */
    size_t num_slices;
    /**
     * The producer that wrote the packet.
     */
    uint16_t producer_id;
    /**
     * The writer of that producer.
     */
    uint16_t writer_id;
    /**
     * The identity that came with the first chunk of this writer.
     */
    ws_identity identity;
    /**
     * What this writer lost since its previous packet: a set of WS_LOSS_ bits, 0 for nothing.
     */
    uint32_t loss_reasons;
} ws_packet;

/**
 * Statistics of a buffer since it was created, with the names and meanings of Perfetto's
 * BufferStats. Sizes count the 16-byte record headers and the rounding up to 16.
 */
typedef struct {
    /**
     * The buffer's size in bytes.
     */
    uint64_t buffer_size;
    /**
     * Bytes of records that were written, re-admitted and relocated ones included.
     */
    uint64_t bytes_written;
    /**
     * Bytes of records that were overwritten before they were read whole.
     */
    uint64_t bytes_overwritten;
    /**
     * Bytes of records that were read whole.
     */
    uint64_t bytes_read;
    /**
     * Bytes of padding that was written behind a cleared range.
     */
    uint64_t padding_bytes_written;
    /**
     * Bytes of padding in cleared ranges, records that were read before included.
     */
    uint64_t padding_bytes_cleared;
    /**
     * Chunks that were written.
     */
    uint64_t chunks_written;
    /**
     * Commits of a chunk that made it longer in place.
     */
    uint64_t chunks_rewritten;
    /**
     * Chunks that were overwritten before they were read whole.
     */
    uint64_t chunks_overwritten;
    /**
     * Chunks that were refused because the buffer was full, or because newer ones had been read.
     */
    uint64_t chunks_discarded;
    /**
     * Chunks that were read whole.
     */
    uint64_t chunks_read;
    /**
     * Chunks that arrived after a later one of the same writer.
     */
    uint64_t chunks_committed_out_of_order;
    /**
     * Incomplete copies that had been read and whose complete chunk was written anew.
     */
    uint64_t chunks_relocated;
    /**
     * How often the writing position went back to the start.
     */
    uint64_t write_wrap_count;
    /**
     * Patches that were applied.
     */
    uint64_t patches_succeeded;
    /**
     * Calls of try_patch that found no place for theirs.
     */
    uint64_t patches_failed;
    /**
     * Packets over several chunks that could be put together.
     */
    uint64_t readaheads_succeeded;
    /**
     * Attempts at it that failed, the packet's rest not being there yet included.
     */
    uint64_t readaheads_failed;
    /**
     * Commits that broke the rules of the format.
     */
    uint64_t abi_violations;
    /**
     * Packets that a writer reported as dropped.
     */
    uint64_t trace_writer_packet_loss;
} ws_stats;

/**
 * How large the chunks of one writer were.
 */
typedef struct {
    /**
     * The producer.
     */
    uint16_t producer_id;
    /**
     * Its writer.
     */
    uint16_t writer_id;
    /**
     * Chunks by size in bytes: at most 8, 32, 128, 512, 1024, 2048, 4096, 8192, 12288, 16384, and
     * above.
     */
    uint64_t bucket_count[11];
    /**
     * Bytes of the chunks in each bucket.
     */
    uint64_t bucket_sum[11];
} ws_writer_stats;

/**
 * Is handed each whole packet that is about to be overwritten unread, in order. `packet` and its
 * slices are valid until it returns. It must not call into the buffer and must return normally (no
 * exception, no longjmp).
 *
 * Returns true when it absorbed the packet: then no loss is reported for it.
 */
typedef bool (*ws_overwrite_fn)(void *user, const ws_packet *packet);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes a buffer. Its memory is mapped, not touched: this takes microseconds whatever the size.
 *
 * @param size_bytes Rounded up to a multiple of 4096; 0 is 4096.
 * @return NULL when there is no memory for it or the policy is none of ws_policy.
 */
ws_buffer *ws_buffer_create(size_t size_bytes, ws_policy policy);

/**
 * Frees a buffer. NULL is allowed. The memory of the last four buffers of at most 1 MiB is kept
 * for the next ones.
 *
 * The caller promises:
 * The pointer is not used again, nor is anything that the buffer handed out.
 */
void ws_buffer_destroy(ws_buffer *buffer);

/**
 * Copies one chunk into the buffer: its payload, without the shared memory's chunk header. Only
 * `producer_id` and the identity are trusted; everything else may be hostile, and `src` may change
 * during the call.
 *
 * @param num_fragments How many fragments the chunk's header says it has.
 * @param flags         A set of WS_CHUNK_ bits.
 * @param complete      False for a copy of a chunk that is still being written; its complete copy
 *                      follows.
 * @return False when the call was refused: the buffer is read-only, a pointer is NULL, both ids
 *         are 0, or there are more than 65535 bytes. True does not mean that the chunk was kept:
 *         what became of it is in the statistics.
 *
 * The caller promises:
 * `src` can be read for `src_size_bytes` bytes.
 */
bool ws_buffer_copy_chunk(ws_buffer *buffer,
                          uint16_t producer_id,
                          ws_identity identity,
                          uint16_t writer_id,
                          uint32_t chunk_id,
                          uint16_t num_fragments,
                          uint8_t flags,
                          bool complete,
                          const uint8_t *src,
                          size_t src_size_bytes);

/**
 * Applies patches to a chunk that was copied before: all of them, or none.
 *
 * @param other_patches_pending False when the chunk can be read after these.
 * @return False when the chunk is gone, or a patch does not lie in it.
 *
 * The caller promises:
 * `patches` can be read for `num_patches` elements; NULL is allowed when there are none.
 */
bool ws_buffer_try_patch(ws_buffer *buffer,
                         uint16_t producer_id,
                         uint16_t writer_id,
                         uint32_t chunk_id,
                         const ws_patch *patches,
                         size_t num_patches,
                         bool other_patches_pending);

/**
 * Says that a writer has ended: its id may come back and start again at chunk 0.
 */
void ws_buffer_end_writer(ws_buffer *buffer, uint16_t producer_id, uint16_t writer_id);

/**
 * Says that a producer and all its writers have ended: its id may come back.
 */
void ws_buffer_end_producer(ws_buffer *buffer, uint16_t producer_id);

/**
 * Writes what became of every record to `out`.
 *
 * The caller promises:
 * `out` is NULL or can be written.
 */
void ws_buffer_ledger(const ws_buffer *buffer, ws_ledger *out);

/**
 * Starts a read pass at the oldest data. Call it before the first ws_buffer_read_next, and again
 * whenever writes or patches came since.
 */
void ws_buffer_begin_read(ws_buffer *buffer);

/**
 * Reads, and consumes, the next packet.
 *
 * @return False when there is none now; `out` is then all zero.
 *
 * The caller promises:
 * `out` is NULL or can be written. The slices are used only until the next write.
 */
bool ws_buffer_read_next(ws_buffer *buffer, ws_packet *out);

/**
 * Makes a copy to read from, with everything unread, the losses to report and the statistics. The
 * original is not changed.
 *
 * @return NULL when there is no memory for it.
 */
ws_buffer *ws_buffer_clone_read_only(const ws_buffer *buffer);

/**
 * Makes the buffer refuse everything that writes, for good.
 */
void ws_buffer_set_read_only(ws_buffer *buffer);

/**
 * Writes the statistics to `out`.
 *
 * The caller promises:
 * `out` is NULL or can be written.
 */
void ws_buffer_stats(const ws_buffer *buffer, ws_stats *out);

/**
 * Writes the chunk sizes by writer to `out`, at most `capacity` of them, in the order of the
 * writers' first chunks.
 *
 * @return The number of writers, which may be larger than `capacity`.
 *
 * The caller promises:
 * `out` can be written for `capacity` elements; NULL is allowed when that is 0.
 */
size_t ws_buffer_writer_stats(const ws_buffer *buffer, ws_writer_stats *out, size_t capacity);

/**
 * Sets the function that is handed packets which are about to be overwritten unread; NULL takes it
 * away.
 *
 * The caller promises:
 * `sink` can be called with `user` until it is replaced or the buffer destroyed.
 */
void ws_buffer_set_overwrite_sink(ws_buffer *buffer, ws_overwrite_fn sink, void *user);

/**
 * The buffer's size in bytes.
 */
size_t ws_buffer_size(const ws_buffer *buffer);

/**
 * How many bytes from the start were ever written; the rest is zero. Never becomes less.
 */
size_t ws_buffer_used_size(const ws_buffer *buffer);

/**
 * Where the next record goes, in bytes from the start.
 */
size_t ws_buffer_write_offset(const ws_buffer *buffer);

/**
 * Bytes of memory that the buffer takes: its ring and what is kept beside it.
 */
size_t ws_buffer_memory_usage(const ws_buffer *buffer);

/**
 * The ring's bytes, for those who check its layout: ws_buffer_size of them, until the next write.
 */
const uint8_t *ws_buffer_ring(const ws_buffer *buffer);

/**
 * What happens when the buffer is full. WS_RING for NULL.
 */
ws_policy ws_buffer_policy(const ws_buffer *buffer);

/**
 * Whether anything was ever written.
 */
bool ws_buffer_has_data(const ws_buffer *buffer);

/**
 * The library's version, such as "0.1.0".
 */
const char *ws_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WATERSHED_H */
