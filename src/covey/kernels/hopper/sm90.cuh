// Hopper's instructions for matrix kernels, under names: mbarriers, bulk copies, warpgroup
// products, packing. Addresses are of shared memory.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct alignas(64) TensorMap {
    char bytes[128];
};

// ---------------------------------------------------------------- synchronisation

__device__ __forceinline__ void barrier_init(u32 at, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}

__device__ __forceinline__ void barrier_expect(u32 at, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
                 : "memory");
}

// Arrive at the barrier of this offset in block `rank` of the cluster.
__device__ __forceinline__ void barrier_arrive(u32 at, u32 rank) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
        "}\n" ::"r"(at),
        "r"(rank)
        : "memory");
}

__device__ __forceinline__ void barrier_wait(u32 at, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra over;\n"
        "bra again;\n"
        "over:\n"
        "}\n" ::"r"(at),
        "r"(parity)
        : "memory");
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// ---------------------------------------------------------------- bulk copies

__device__ __forceinline__ void fetch(
    const TensorMap* map, u32 to, u32 barrier, u32 column, u32 row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(column), "r"(row)
        : "memory");
}

// The same, into each of the first `blocks` of the cluster.
__device__ __forceinline__ void fetch_for_all(
    const TensorMap* map, u32 to, u32 barrier, u32 column, u32 row, u32 blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(column), "r"(row), "h"(u16((1 << blocks) - 1))
        : "memory");
}

// Bring a box into the L2 cache.
__device__ __forceinline__ void prefetch(const TensorMap* map, u32 column, u32 row) {
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map),
                 "r"(column), "r"(row)
                 : "memory");
}

// ---------------------------------------------------------------- tensor cores

// 128-byte rows, swizzled in groups of eight: the layout that the bulk copies write.
// Its lower half; the shuffle keeps it in a uniform register.
__device__ __forceinline__ u32 descriptor(u32 at) {
    return __shfl_sync(~0u, (at & 0x3ffff) >> 4 | 1 << 16, 0);
}

__device__ __forceinline__ u64 whole(u32 descriptor) {
    return u64(1024 >> 4 | 1 << 30) << 32 | descriptor;
}

#define ACC8(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define ACC64(d) \
    ACC8(d, 0), ACC8(d, 8), ACC8(d, 16), ACC8(d, 24), ACC8(d, 32), ACC8(d, 40), ACC8(d, 48), \
        ACC8(d, 56)
#define NAMES64 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"

// d (64 x 128) = a (64 x 32) b (128 x 32)^T, added to d where ADD.
template <int ADD>
__device__ __forceinline__ void multiply(float (&d)[64], u32 a, u32 b) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 " NAMES64
        ", %64, %65, add, 1, 1;\n"
        "}\n"
        : ACC64(d)
        : "l"(whole(a)), "l"(whole(b)), "n"(ADD));
}

__device__ __forceinline__ void multiply_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void multiply_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void multiply_wait() {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// Keeps the compiler from moving uses of d across this point.
__device__ __forceinline__ void pin(float (&d)[64]) {
#pragma unroll
    for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// ---------------------------------------------------------------- arithmetic

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Of angles within a turn around 0.
__device__ __forceinline__ float sine_fast(float x) {
    float y;
    asm("sin.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float cosine_fast(float x) {
    float y;
    asm("cos.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ u32 pack_e4m3(float x0, float x1, float x2, float x3) {
    u32 packed;
    asm("{\n"
        ".reg .b16 low, high;\n"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};\n"
        "}\n"
        : "=r"(packed)
        : "f"(x0), "f"(x1), "f"(x2), "f"(x3));
    return packed;
}

__device__ __forceinline__ u32 pack_bf16(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(packed) : "f"(low), "f"(high));
    return packed;
}

__device__ __forceinline__ u32 add_bf16(u32 x, u32 y) {
    u32 sum;
    asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(sum) : "r"(x), "r"(y));
    return sum;
}

__device__ __forceinline__ uint4 add_bf16(uint4 x, uint4 y) {
    return {add_bf16(x.x, y.x), add_bf16(x.y, y.y), add_bf16(x.z, y.z), add_bf16(x.w, y.w)};
}

__device__ __forceinline__ void store_shared(u32 at, u32 x) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}

__device__ __forceinline__ uint4 load_shared(u32 at) {
    uint4 x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(at)
                 : "memory");
    return x;
}

__device__ __forceinline__ float load_shared_float(u32 at) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at) : "memory");
    return x;
}
