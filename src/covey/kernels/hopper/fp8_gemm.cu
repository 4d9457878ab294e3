// Block-scaled FP8 matrix product for sm_90a, alone or with what follows it in a decoder.
//
//   a         (rows, 128 * groups) e4m3       an activation
//   a scales  (groups, rows) float32          a factor a row and group
//   b         (columns, 128 * groups) e4m3    a weight
//   b scales  (columns / 128, groups) float32 a factor a block
//
//   product:  out (rows, columns) BF16 = a b^T
//   added:    the same, rounded to BF16 and added to what out holds
//   heads:    columns are heads of 128: queries, then keys, then values. Queries and keys get
//             their RMS norm and rotary embedding before they are rounded; keys and
//             values of kept rows are written to the KV cache too
//   gated:    b is two matrices, gate above up, of `columns` rows each;
//             out (rows, columns) e4m3 with a factor a row and group = silu(gate) * up
//
// A block computes 128 rows by two strips of 128 columns. Its last warpgroup fetches, the
// other two multiply 64 rows each. Within a group of 128 the tensor cores sum; every group's
// sum is scaled and added to a float32 accumulator. While one warpgroup does that, the other
// has the tensor cores.

#include "sm90.cuh"

// The launcher defines these two: stages of the ring, and blocks of a cluster, which have
// the same columns and fetch a part of the weight's rows each, for all of them.
constexpr u32 STAGES = RING_STAGES;
constexpr u32 CLUSTER = CLUSTER_BLOCKS;

constexpr u32 TILE = 128;                 // rows of a block, columns of a strip, bytes of a step
constexpr u32 TILE_BYTES = TILE * TILE;
constexpr u32 STAGE_BYTES = 3 * TILE_BYTES + TILE * 4;
constexpr u32 WARPS = 8;                  // that multiply
constexpr u32 WARP_STORE_BYTES = 16 * 128;
constexpr u32 B_ROWS = TILE / CLUSTER;    // of a strip that one block of a cluster fetches

constexpr u32 AT_A = 0;
constexpr u32 AT_B = AT_A + STAGES * TILE_BYTES;
constexpr u32 AT_STORE = AT_B + 2 * STAGES * TILE_BYTES;
constexpr u32 AT_SCALES = AT_STORE + WARPS * WARP_STORE_BYTES;
constexpr u32 AT_FULL = AT_SCALES + STAGES * TILE * 4;
constexpr u32 AT_EMPTY = AT_FULL + STAGES * 8;

// The gate's sums are kept times -log2(e), which saves the exponentials a product each.
constexpr float GATE_FACTOR = -1.44269504f;

// GATE_FACTOR * silu(gate) * up of two elements, with one reciprocal: 1/p = q/(pq). The
// exponents are bounded so that pq is finite; beyond the bound, silu is under 1e-17.
__device__ __forceinline__ void gate_two(float& g0, float& g1, float u0, float u1) {
    float p = 1.0f + exp2_fast(fminf(g0, 62.0f));
    float q = 1.0f + exp2_fast(fminf(g1, 62.0f));
    float r = reciprocal(p * q);
    g0 = g0 * u0 * (r * q);
    g1 = g1 * u1 * (r * p);
}

// ---------------------------------------------------------------- tiles

// The order of tiles: bands of `band` row blocks, columns slowly within a band, so that the
// blocks at work share what they read.
struct Tiles {
    u32 row_blocks, column_blocks, band;

    __device__ u32 count() const { return row_blocks * column_blocks; }

    __device__ void find(u32 tile, u32& row_block, u32& column_block) const {
        u32 whole = band * column_blocks;
        u32 first = tile / whole * band;
        u32 high = min(band, row_blocks - first);
        u32 within = tile % whole;
        column_block = within / high;
        row_block = first + within % high;
    }
};

// A stage of the ring, and which time round.
struct Turn {
    u32 stage = 0, parity = 0;

    __device__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

enum Kind { PRODUCT, ADDED, HEADS, GATED };

// What a product by heads needs besides. Dimension i of a head rotates with i + 64.
struct Heads {
    const int* positions;     // (rows,)
    const float* frequencies; // (64,) angles a position
    const u32* query_norm;  // (128,) BF16 in words of two, or null
    const u32* key_norm;
    const int* slots;       // (rows,) of the KV cache, -1 where a row is not kept; or null
    u8* key_cache;          // (slots, key heads, 128) BF16
    u8* value_cache;
    u64 slot_bytes;
    u32 queries, keys;      // heads of each
    float epsilon;
};

// ---------------------------------------------------------------- roles

template <Kind KIND>
__device__ __forceinline__ void produce(
    const TensorMap* a, const TensorMap* a_scales, const TensorMap* b, const TensorMap* old,
    u32 base, Tiles tiles, u32 groups, u32 second_strip, u32 strip_step) {
    Turn turn;
    u32 rank = CLUSTER == 1 ? 0 : cluster_rank();
    for (u32 tile = blockIdx.x / CLUSTER; tile < tiles.count(); tile += gridDim.x / CLUSTER) {
        u32 row_block, column_block;
        tiles.find(tile, row_block, column_block);
        u32 row = (row_block * CLUSTER + rank) * TILE;
        u32 first = column_block * strip_step + rank * B_ROWS;
        for (u32 group = 0; group < groups; ++group, turn.next()) {
            u32 full = base + AT_FULL + turn.stage * 8;
            barrier_wait(base + AT_EMPTY + turn.stage * 8, turn.parity ^ 1);
            barrier_expect(full, STAGE_BYTES);
            fetch(a, base + AT_A + turn.stage * TILE_BYTES, full, group * TILE, row);
            fetch(a_scales, base + AT_SCALES + turn.stage * TILE * 4, full, row, group);
            u32 strip = base + AT_B + turn.stage * 2 * TILE_BYTES + rank * B_ROWS * TILE;
            if (CLUSTER == 1) {
                fetch(b, strip, full, group * TILE, first);
                fetch(b, strip + TILE_BYTES, full, group * TILE, first + second_strip);
            } else {
                fetch_for_all(b, strip, full, group * TILE, first, CLUSTER);
                fetch_for_all(b, strip + TILE_BYTES, full, group * TILE, first + second_strip,
                              CLUSTER);
            }
            // Soon the tile is finished and added to this. A word holds two columns.
            if (KIND == ADDED && group + 1 == groups)
                prefetch(old, column_block * strip_step / 2, row);
        }
    }
}

// sum += scaled part; a thread holds rows r and r + 8 of its warp's 16.
__device__ __forceinline__ void promote(
    float (&sum)[64], const float (&part)[64], float low, float high) {
#pragma unroll
    for (int i = 0; i < 64; i += 4) {
        sum[i] += low * part[i];
        sum[i + 1] += low * part[i + 1];
        sum[i + 2] += high * part[i + 2];
        sum[i + 3] += high * part[i + 3];
    }
}

// One tile's sums of one warpgroup, the first strip's times `extra`.
__device__ __forceinline__ void accumulate(
    float (&sums)[2][64], u32 base, u32 a_start, u32 b_start, Turn& turn, u32 groups,
    const float* b_scales0, const float* b_scales1, float extra, u32 warp, u32 lane, bool leads) {
    u32 scale_row = (warp * 16 + lane / 4) * 4;
    float part[64];
    barrier_wait(base + AT_FULL + turn.stage * 8, turn.parity);
    float low = load_shared_float(base + AT_SCALES + turn.stage * TILE * 4 + scale_row);
    float high = load_shared_float(base + AT_SCALES + turn.stage * TILE * 4 + scale_row + 32);
    float factor0 = extra * __ldg(b_scales0), factor1 = __ldg(b_scales1);
#pragma unroll
    for (int i = 0; i < 64; ++i) sums[0][i] = sums[1][i] = 0.0f;
    for (u32 group = 0; group < groups; ++group) {
        u32 here = turn.stage;
        u32 a = a_start + here * (TILE_BYTES >> 4);
        u32 b = b_start + here * (2 * TILE_BYTES >> 4);
        float low0 = low * factor0, high0 = high * factor0;
        float low1 = low * factor1, high1 = high * factor1;
#pragma unroll
        for (u32 strip = 0; strip < 2; ++strip) {
            u32 strip_b = b + strip * (TILE_BYTES >> 4);
            pin(part);
            multiply_begin();
            multiply<0>(part, a, strip_b);
            multiply<1>(part, a + 2, strip_b + 2);
            multiply<1>(part, a + 4, strip_b + 4);
            multiply<1>(part, a + 6, strip_b + 6);
            multiply_commit();
            if (strip == 1) {
                turn.next();
                if (group + 1 < groups) {
                    // What the next group needs, while the tensor cores are busy.
                    factor0 = extra * __ldg(b_scales0 + group + 1);
                    factor1 = __ldg(b_scales1 + group + 1);
                    barrier_wait(base + AT_FULL + turn.stage * 8, turn.parity);
                    u32 scales = base + AT_SCALES + turn.stage * TILE * 4 + scale_row;
                    low = load_shared_float(scales);
                    high = load_shared_float(scales + 32);
                }
            }
            multiply_wait();
            pin(part);
            if (strip == 1) {
                if (lane < CLUSTER) barrier_arrive(base + AT_EMPTY + here * 8, lane);
            }
            promote(sums[strip], part, strip ? low1 : low0, strip ? high1 : high0);
        }
        if (leads && group == 0) asm volatile("bar.arrive 1, 256;" ::: "memory");
    }
}

// A lane's share of 16 rows of 128 bytes: 16 bytes of each fourth row.
struct Share {
    uint4 of[4];
};

__device__ __forceinline__ void read_rows(
    Share& share, const u8* from, u64 pitch, u32 rows, u32 lane) {
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        u32 row = i * 4 + lane / 8;
        share.of[i] = {0, 0, 0, 0};
        if (row < rows)
            share.of[i] = *reinterpret_cast<const uint4*>(from + row * pitch + lane % 8 * 16);
    }
}

// Call for each of a lane's shares of 16 rows in a warp's own memory: number, row, byte in the
// row, and what is there.
template <typename Each>
__device__ __forceinline__ void each_share(u32 store, u32 lane, Each each) {
    u32 batch = lane % 8;
    __syncwarp();
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        u32 row = i * 4 + lane / 8;
        each(i, row, batch * 16, load_shared(store + row * 128 + ((batch ^ (row & 7)) << 4)));
    }
    __syncwarp();
}

// Write 16 rows from a warp's own memory, or their sum with `old`; `to` is the first's place.
template <bool ADD>
__device__ __forceinline__ void write_rows(
    u32 store, u8* to, u64 pitch, u32 rows, u32 lane, const Share& old) {
    each_share(store, lane, [&](u32 i, u32 row, u32 byte, uint4 x) {
        if (ADD) x = add_bf16(x, old.of[i]);
        if (row < rows) *reinterpret_cast<uint4*>(to + row * pitch + byte) = x;
    });
}

// Over the four threads that hold a row.
__device__ __forceinline__ float largest_of_four(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float sum_of_four(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// silu(gate) * up in FP8: 16 rows by one group of columns.
// out: the warp's first row and column; scales: of its first row; rows: how many there are.
__device__ __forceinline__ void finish_gated(
    float (&gate)[64], float (&up)[64], u32 store, u8* out, u64 pitch, float* scales, u32 rows,
    u32 lane) {
    float low = 0.0f, high = 0.0f;
#pragma unroll
    for (int i = 0; i < 64; i += 4) {
        gate_two(gate[i], gate[i + 1], up[i], up[i + 1]);
        gate_two(gate[i + 2], gate[i + 3], up[i + 2], up[i + 3]);
        low = fmaxf(low, fmaxf(fabsf(gate[i]), fabsf(gate[i + 1])));
        high = fmaxf(high, fmaxf(fabsf(gate[i + 2]), fabsf(gate[i + 3])));
    }
    constexpr float BACK = 1.0f / GATE_FACTOR;
    low = fmaxf(largest_of_four(low) * -BACK, 1e-10f) / 448.0f;
    high = fmaxf(largest_of_four(high) * -BACK, 1e-10f) / 448.0f;
    u32 row = lane / 4, column = lane % 4;
    if (column == 0) {
        if (row < rows) scales[row] = low;
        if (row + 8 < rows) scales[row + 8] = high;
    }
    low = BACK / low;
    high = BACK / high;
    // A thread has two neighbouring columns of each eight. It gives two of one eight to the
    // thread beside it and gets two of the other, so that both have four in a row.
    u32 order = column & 1 ? 0x3276 : 0x5410;
    u32 within = 8 * (column & 1) + 4 * (column >> 1);
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        float* x = gate + 8 * i;
        u32 mine = pack_e4m3(x[0] * low, x[1] * low, x[4] * low, x[5] * low);
        u32 below = pack_e4m3(x[2] * high, x[3] * high, x[6] * high, x[7] * high);
        u32 at = store + row * 128 + ((i ^ row) << 4) + within;
        store_shared(at, __byte_perm(mine, __shfl_xor_sync(~0u, mine, 1), order));
        store_shared(at + 1024, __byte_perm(below, __shfl_xor_sync(~0u, below, 1), order));
    }
    write_rows<false>(store, out, pitch, rows, lane, Share{});
}

// A quarter of a tile's columns, 64 of them, in BF16 into a warp's own memory.
__device__ __forceinline__ void store_quarter(
    const float (&sums)[2][64], u32 quarter, u32 store, u32 lane) {
    u32 row = lane / 4, column = lane % 4;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        const float* x = sums[quarter / 2] + 32 * (quarter % 2) + 4 * i;
        u32 at = store + row * 128 + ((i ^ row) << 4) + column * 4;
        store_shared(at, pack_bf16(x[0], x[1]));
        store_shared(at + 1024, pack_bf16(x[2], x[3]));
    }
}

// Both strips in BF16, or the first alone, 64 columns at a time; added to what is there
// where ADD. What is there is read two steps ahead, as registers become free.
template <bool ADD>
__device__ __forceinline__ void finish_product(
    float (&sums)[2][64], u32 store, u8* out, u64 pitch, u32 rows, u32 lane, bool both) {
    constexpr u32 AHEAD = 2;
    Share old[4] = {};
    if (ADD) {
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) read_rows(old[i], out + i * 128, pitch, rows, lane);
    }
#pragma unroll
    for (u32 quarter = 0; quarter < 4; ++quarter) {
        if (quarter >= 2 && !both) break;
        store_quarter(sums, quarter, store, lane);
        if (ADD && quarter + AHEAD < 4 && both)
            read_rows(old[quarter + AHEAD], out + (quarter + AHEAD) * 128, pitch, rows, lane);
        write_rows<ADD>(store, out + quarter * 128, pitch, rows, lane, old[quarter]);
    }
}

// The RMS norm of a head, of the two rows that a thread shares.
__device__ __forceinline__ void norm_head(
    float (&x)[64], const u32* norm, float epsilon, u32 column) {
    float low = 0.0f, high = 0.0f;
#pragma unroll
    for (int i = 0; i < 64; i += 4) {
        low += x[i] * x[i] + x[i + 1] * x[i + 1];
        high += x[i + 2] * x[i + 2] + x[i + 3] * x[i + 3];
    }
    low = rsqrtf(sum_of_four(low) * (1.0f / TILE) + epsilon);
    high = rsqrtf(sum_of_four(high) * (1.0f / TILE) + epsilon);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        u32 pair = __ldg(norm + 4 * i + column);
        float first = __uint_as_float(pair << 16), second = __uint_as_float(pair & 0xffff0000);
        x[4 * i] *= low * first;
        x[4 * i + 1] *= low * second;
        x[4 * i + 2] *= high * first;
        x[4 * i + 3] *= high * second;
    }
}

// The cosine and sine of an angle. Nothing would hide the loads of a table. Whole turns are taken
// off first: adding WHOLE leaves no bits for fractions, and 2 pi has two parts, of which the
// first is exact when multiplied.
__device__ __forceinline__ float2 direction(float angle) {
    constexpr float WHOLE = 12582912.0f;  // 1.5 * 2^23
    float turns = fmaf(angle, 0.159154943f, WHOLE) - WHOLE;
    angle = fmaf(turns, -6.28125f, angle);
    angle = fmaf(turns, -1.93530718e-3f, angle);
    return {cosine_fast(angle), sine_fast(angle)};
}

__device__ __forceinline__ void turn_two(float& x, float& y, float2 to) {
    float rotated = x * to.x - y * to.y;
    y = y * to.x + x * to.y;
    x = rotated;
}

// Two heads, or the first alone, of 16 rows from `row` on. `head` is the first's number, `out`
// its place in the warp's first row, `left` how many rows there are.
__device__ __forceinline__ void finish_heads(
    float (&sums)[2][64], u32 store, u8* out, u64 pitch, u32 row, u32 left, u32 lane, bool both,
    u32 head, const Heads& heads) {
    u32 rotated = heads.queries + heads.keys;
    u32 column = lane % 4;
    int slots[4] = {-1, -1, -1, -1};
    if (heads.slots != nullptr && head + 1 >= heads.queries) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            u32 at = i * 4 + lane / 8;
            if (at < left) slots[i] = __ldg(heads.slots + row + at);
        }
    }
    if (head < rotated) {
        bool second = both && head + 1 < rotated;
        const u32* norms[2] = {head < heads.queries ? heads.query_norm : heads.key_norm,
                               head + 1 < heads.queries ? heads.query_norm : heads.key_norm};
        float low = lane / 4 < left ? __ldg(heads.positions + row + lane / 4) : 0;
        float high = lane / 4 + 8 < left ? __ldg(heads.positions + row + lane / 4 + 8) : 0;
        if (norms[0] != nullptr) norm_head(sums[0], norms[0], heads.epsilon, column);
        if (second && norms[1] != nullptr) norm_head(sums[1], norms[1], heads.epsilon, column);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float* at = heads.frequencies + 8 * i + 2 * column;
            float2 rate = __ldg(reinterpret_cast<const float2*>(at));
            float2 to[4] = {direction(low * rate.x), direction(low * rate.y),
                            direction(high * rate.x), direction(high * rate.y)};
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                turn_two(sums[0][4 * i + e], sums[0][4 * i + e + 32], to[e]);
                if (second) turn_two(sums[1][4 * i + e], sums[1][4 * i + e + 32], to[e]);
            }
        }
    }
#pragma unroll
    for (u32 quarter = 0; quarter < 4; ++quarter) {
        if (quarter >= 2 && !both) break;
        store_quarter(sums, quarter, store, lane);
        u32 here = head + quarter / 2;
        bool keeps = here >= heads.queries;
        u8* cache = here < rotated ? heads.key_cache + u64(here - heads.queries) * 2 * TILE
                                  : heads.value_cache + u64(here - rotated) * 2 * TILE;
        each_share(store, lane, [&](u32 i, u32 at, u32 byte, uint4 x) {
            byte += quarter % 2 * TILE;
            if (at < left)
                *reinterpret_cast<uint4*>(out + at * pitch + quarter / 2 * 2 * TILE + byte) = x;
            if (keeps && slots[i] >= 0)
                *reinterpret_cast<uint4*>(cache + u64(slots[i]) * heads.slot_bytes + byte) = x;
        });
    }
}

template <Kind KIND>
__device__ __forceinline__ void consume(
    u32 base, Tiles tiles, u32 groups, u32 rows, u32 columns, u32 second_strip, u32 strip_step,
    const float* b_scales, u8* out, float* scales, u32 scales_pitch, const Heads& heads) {
    // Uniform over a warp; told to the compiler by a shuffle.
    u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    u32 lane = threadIdx.x % 32;
    u32 rank = CLUSTER == 1 ? 0 : cluster_rank();
    u32 store = base + AT_STORE + warp * WARP_STORE_BYTES;
    u32 a_start = descriptor(base + AT_A + warp / 4 * 64 * TILE);
    u32 b_start = descriptor(base + AT_B);
    Turn turn;
    bool started = false;
    for (u32 tile = blockIdx.x / CLUSTER; tile < tiles.count(); tile += gridDim.x / CLUSTER) {
        u32 row_block, column_block;
        tiles.find(tile, row_block, column_block);
        u32 row = (row_block * CLUSTER + rank) * TILE + warp * 16;
        u32 column = column_block * strip_step;
        const float* scales0 = b_scales + u64(column / TILE) * groups;
        // The second strip of a product may lie behind the last column; it is not stored.
        bool whole = KIND == GATED || column + TILE < columns;
        const float* scales1 = whole ? scales0 + u64(second_strip / TILE) * groups : scales0;
        // The second warpgroup begins a step behind, so that one is finishing a tile while
        // the other has the tensor cores.
        if (!started && warp >= 4) asm volatile("bar.sync 1, 256;" ::: "memory");
        float sums[2][64];
        accumulate(sums, base, a_start, b_start, turn, groups, scales0, scales1,
                   KIND == GATED ? GATE_FACTOR : 1.0f, warp, lane, !started && warp < 4);
        started = true;
        u32 left = rows > row ? rows - row : 0;
        if (KIND == GATED) {
            u8* to = out + u64(row) * columns + column;
            finish_gated(sums[0], sums[1], store, to, columns,
                         scales + u64(column / TILE) * scales_pitch + row, left, lane);
        } else if (KIND == HEADS) {
            u8* to = out + (u64(row) * columns + column) * 2;
            finish_heads(sums, store, to, u64(columns) * 2, row, left, lane, whole,
                         column / TILE, heads);
        } else {
            u8* to = out + (u64(row) * columns + column) * 2;
            finish_product<KIND == ADDED>(sums, store, to, u64(columns) * 2, left, lane, whole);
        }
    }
}

template <Kind KIND>
__device__ __forceinline__ void run(
    const TensorMap* a, const TensorMap* a_scales, const TensorMap* b, const TensorMap* old,
    const float* b_scales, u8* out, float* scales, u32 scales_pitch, u32 rows, u32 columns,
    u32 groups, u32 band, const Heads& heads) {
    extern __shared__ u8 memory[];
    u32 base = (u32(__cvta_generic_to_shared(memory)) + 1023) & ~1023u;
    u32 strip_step = KIND == GATED ? TILE : 2 * TILE;
    u32 second_strip = KIND == GATED ? columns : TILE;
    Tiles tiles{(rows + CLUSTER * TILE - 1) / (CLUSTER * TILE),
                (columns + strip_step - 1) / strip_step, band};
    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < STAGES; ++stage) {
            barrier_init(base + AT_FULL + stage * 8, 1);
            barrier_init(base + AT_EMPTY + stage * 8, WARPS * CLUSTER);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (CLUSTER > 1) cluster_sync();
    if (threadIdx.x >= WARPS * 32) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == WARPS * 32)
            produce<KIND>(a, a_scales, b, old, base, tiles, groups, second_strip, strip_step);
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        consume<KIND>(base, tiles, groups, rows, columns, second_strip, strip_step, b_scales, out,
                      scales, scales_pitch, heads);
    }
    // No block may end while others still write to its memory.
    if (CLUSTER > 1) cluster_sync();
}

// `old` describes `out` in words of 4 bytes.
#define KERNEL(name, kind) \
    extern "C" __global__ void __launch_bounds__(384, 1) __cluster_dims__(CLUSTER, 1, 1) name( \
        const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap a_scales, \
        const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap old, \
        const float* b_scales, u8* out, float* scales, u32 scales_pitch, u32 rows, \
        u32 columns, u32 groups, u32 band, const __grid_constant__ Heads heads) { \
        run<kind>(&a, &a_scales, &b, &old, b_scales, out, scales, scales_pitch, rows, columns, \
                  groups, band, heads); \
    }

KERNEL(fp8_gemm, PRODUCT)
KERNEL(fp8_gemm_added, ADDED)
KERNEL(fp8_gemm_heads, HEADS)
KERNEL(fp8_gemm_gated, GATED)
