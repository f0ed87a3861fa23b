// Softmax attention for heads of few channels: float32, forward and backward, on the calling thread alone.
//
// Every vector lane computes a (batch, head) pair of its own. A group of LANES neighbouring pairs is copied into tiles,
// in which the same number of all its pairs lies side by side, and every line of arithmetic then works on LANES pairs
// at once. No sum crosses lanes: the cost hardly depends on how a width is cut into heads, and a pair's result depends
// neither on its place in the batch nor on how many threads the process has.
//
// Vectors are those that GCC and Clang translate for any processor. NaN and infinity pass as in plain arithmetic, so
// this file must not be compiled with -ffast-math.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <utility>

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#else
constexpr int LANES = 8;
#endif
constexpr int ROWS = 2;  // queries at once: each key and value is loaded for both
// LARGEST_HEAD_DIM comes with the compiler's command line.

typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)), may_alias));
typedef uint32_t LaneBits __attribute__((vector_size(LANES * sizeof(float))));
typedef float Quad __attribute__((vector_size(4 * sizeof(float))));

// Four of the eight numbers in a and b, by index.
#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t QuadIndex __attribute__((vector_size(4 * sizeof(int32_t))));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, QuadIndex{__VA_ARGS__})
#endif

constexpr double LOG2_E = 1.4426950408889634;
constexpr float LN_2 = 0.693147181f;

// ---- Arithmetic on lanes --------------------------------------------------------------------------------------------

inline Lanes larger(Lanes a, Lanes b) { return a > b ? a : b; }

// 2^x for x <= 0, relative error below 2e-7: exactly 1 at 0, 0 where the result is no normal number, NaN for NaN.
inline Lanes power_of_two(Lanes x) {
    constexpr float ROUNDER = 12582912.f;  // 1.5 * 2^23: adding it leaves the nearest integer in the lowest bits
    const Lanes rounded = x + ROUNDER;
    const Lanes f = x - (rounded - ROUNDER);  // -1/2 to 1/2
    // 2^f: of the polynomials of degree 5 that are 1 at 0, the one whose largest relative error is smallest.
    Lanes polynomial = f * 0.0013264727f + 0.009671513f;
    polynomial = polynomial * f + 0.055507336f;
    polynomial = polynomial * f + 0.24022242f;
    polynomial = polynomial * f + 0.693147f;
    polynomial = polynomial * f + 1.f;
    const LaneBits exponent = ((LaneBits)rounded + 127) << 23;
    return x < -126.f ? Lanes{} : polynomial * (Lanes)exponent;
}

// The sum starts at zero, so that a single product is rounded too: forward and backward then see the same logit.
template <int D>
inline Lanes dot(const Lanes* a, const Lanes* b) {
    Lanes sum = {};
    for (int e = 0; e < D; ++e) sum += a[e] * b[e];
    return sum;
}

template <int D>
inline void add_multiple(Lanes* sum, Lanes factor, const Lanes* x) {
    for (int e = 0; e < D; ++e) sum[e] += factor * x[e];
}

inline void scale_tile(Lanes* tile, int64_t count, float factor) {
    for (int64_t n = 0; n < count; ++n) tile[n] *= factor;
}

// ---- Between a tensor and its tile ----------------------------------------------------------------------------------

struct Shape {
    int64_t batch, tokens, heads, head_dim;
    int64_t q_stride, k_stride, v_stride;  // numbers from one token to the next
};

// Where the pairs of one group begin in a tensor (batch, tokens, heads, head_dim) whose tokens are `stride` apart.
struct Places {
    int64_t offset[LANES];
    int64_t stride;
    bool adjacent = true;  // within every four lanes, one head directly follows the other

    // The last group repeats the last pair in lanes that are left over: they read and write the same numbers as it.
    Places(int64_t group, const Shape& shape, int64_t stride) : stride(stride) {
        int64_t item = group * LANES / shape.heads, head = group * LANES % shape.heads;
        for (int lane = 0; lane < LANES; ++lane) {
            offset[lane] = item * shape.tokens * stride + head * shape.head_dim;
            if (lane % 4 && offset[lane] != offset[lane - 1] + shape.head_dim) adjacent = false;
            if (head + 1 < shape.heads) {
                ++head;
            } else if (item + 1 < shape.batch) {
                ++item, head = 0;
            }
        }
    }
};

inline Quad load(const float* from) {
    Quad quad;
    std::memcpy(&quad, from, sizeof quad);
    return quad;
}

inline void store(float* to, Quad quad) { std::memcpy(to, &quad, sizeof quad); }

inline void transpose(Quad& a, Quad& b, Quad& c, Quad& d) {
    const Quad ab01 = SHUFFLE(a, b, 0, 4, 1, 5), ab23 = SHUFFLE(a, b, 2, 6, 3, 7);
    const Quad cd01 = SHUFFLE(c, d, 0, 4, 1, 5), cd23 = SHUFFLE(c, d, 2, 6, 3, 7);
    a = SHUFFLE(ab01, cd01, 0, 1, 4, 5), b = SHUFFLE(ab01, cd01, 2, 3, 6, 7);
    c = SHUFFLE(ab23, cd23, 0, 1, 4, 5), d = SHUFFLE(ab23, cd23, 2, 3, 6, 7);
}

// Four channels of four lanes.
inline void read_block(const float* from, const int64_t* offset, float* tile) {
    Quad a = load(from + offset[0]), b = load(from + offset[1]);
    Quad c = load(from + offset[2]), d = load(from + offset[3]);
    transpose(a, b, c, d);
    store(tile, a), store(tile + LANES, b), store(tile + 2 * LANES, c), store(tile + 3 * LANES, d);
}

inline void write_block(const float* tile, const int64_t* offset, float* to) {
    Quad a = load(tile), b = load(tile + LANES), c = load(tile + 2 * LANES), d = load(tile + 3 * LANES);
    transpose(a, b, c, d);
    store(to + offset[0], a), store(to + offset[1], b), store(to + offset[2], c), store(to + offset[3], d);
}

// The D channels of four lanes at one token; where 4 does not divide D, the last two blocks overlap.
template <int D>
inline void read_four_lanes(const float* from, const int64_t* offset, bool adjacent, float* tile) {
    if constexpr (D >= 4) {
        for (int e = 0; e < D; e += 4) {
            const int first = e + 4 <= D ? e : D - 4;
            read_block(from + first, offset, tile + first * LANES);
        }
    } else if (D == 1 && adjacent) {
        store(tile, load(from + offset[0]));
    } else if (D == 2 && adjacent) {
        const Quad a = load(from + offset[0]), b = load(from + offset[2]);
        store(tile, SHUFFLE(a, b, 0, 2, 4, 6));
        store(tile + LANES, SHUFFLE(a, b, 1, 3, 5, 7));
    } else {
        for (int lane = 0; lane < 4; ++lane)
            for (int e = 0; e < D; ++e) tile[e * LANES + lane] = from[offset[lane] + e];
    }
}

template <int D>
inline void write_four_lanes(const float* tile, const int64_t* offset, bool adjacent, float* to) {
    if constexpr (D >= 4) {
        for (int e = 0; e < D; e += 4) {
            const int first = e + 4 <= D ? e : D - 4;
            write_block(tile + first * LANES, offset, to + first);
        }
    } else if (D == 1 && adjacent) {
        store(to + offset[0], load(tile));
    } else if (D == 2 && adjacent) {
        const Quad a = load(tile), b = load(tile + LANES);
        store(to + offset[0], SHUFFLE(a, b, 0, 4, 1, 5));
        store(to + offset[2], SHUFFLE(a, b, 2, 6, 3, 7));
    } else {
        for (int lane = 0; lane < 4; ++lane)
            for (int e = 0; e < D; ++e) to[offset[lane] + e] = tile[e * LANES + lane];
    }
}

struct Input {
    const float* tensor;
    const Places& places;
    Lanes* tile;
};

struct Output {
    const Lanes* tile;
    const Places& places;
    float* tensor;
};

// Token by token through all tensors: queries, keys and values of a token are often neighbours in memory.
template <int D>
void read_tiles(std::initializer_list<Input> inputs, int64_t tokens) {
    for (int64_t n = 0; n < tokens; ++n)
        for (const Input& in : inputs)
            for (int lane = 0; lane < LANES; lane += 4)
                read_four_lanes<D>(in.tensor + n * in.places.stride, in.places.offset + lane, in.places.adjacent,
                                   reinterpret_cast<float*>(in.tile + n * D) + lane);
}

template <int D>
void write_tiles(std::initializer_list<Output> outputs, int64_t tokens) {
    for (int64_t n = 0; n < tokens; ++n)
        for (const Output& out : outputs)
            for (int lane = 0; lane < LANES; lane += 4)
                write_four_lanes<D>(reinterpret_cast<const float*>(out.tile + n * D) + lane, out.places.offset + lane,
                                    out.places.adjacent, out.tensor + n * out.places.stride);
}

// Memory for the tiles of one group, aligned for vectors; it stays in the processor's cache from group to group.
class Scratch {
  public:
    explicit Scratch(int64_t count)
        : memory(static_cast<Lanes*>(std::aligned_alloc(sizeof(Lanes), count * sizeof(Lanes)))), next(memory) {}
    Scratch(const Scratch&) = delete;
    ~Scratch() { std::free(memory); }

    bool missing() const { return !memory; }

    Lanes* take(int64_t count) {
        Lanes* taken = next;
        next += count;
        return taken;
    }

  private:
    Lanes *memory, *next;
};

// ---- Forward --------------------------------------------------------------------------------------------------------

// What the backward pass needs to compute a query's probabilities again: 2^(logit - largest) * inverse_sum. Computing
// them twice is cheaper than storing tokens * tokens numbers per head.
struct Statistics {
    Lanes largest, inverse_sum;
};

template <int D>
struct ForwardTiles {
    Lanes *q, *k, *v, *out, *logits;

    ForwardTiles(Scratch& scratch, int64_t tokens)
        : q(scratch.take(tokens * D)), k(scratch.take(tokens * D)), v(scratch.take(tokens * D)),
          out(scratch.take(tokens * D)), logits(scratch.take(tokens * ROWS)) {}

    static int64_t size(int64_t tokens) { return tokens * (4 * D + ROWS); }
};

// COUNT queries from the i-th on against all keys. Logits are in units of ln 2: queries come multiplied by log2(e).
template <int D, int COUNT>
inline void attend(const ForwardTiles<D>& tiles, int64_t i, int64_t tokens, Statistics* statistics) {
    const Lanes* q = tiles.q + i * D;
    Lanes largest[COUNT], sum[COUNT] = {}, weighted[COUNT][D] = {};
    for (int row = 0; row < COUNT; ++row) largest[row] = dot<D>(q + row * D, tiles.k);
    for (int64_t j = 0; j < tokens; ++j)
        for (int row = 0; row < COUNT; ++row) {
            const Lanes logit = dot<D>(q + row * D, tiles.k + j * D);
            tiles.logits[j * COUNT + row] = logit;
            largest[row] = larger(logit, largest[row]);
        }
    for (int64_t j = 0; j < tokens; ++j)
        for (int row = 0; row < COUNT; ++row) {
            const Lanes weight = power_of_two(tiles.logits[j * COUNT + row] - largest[row]);
            sum[row] += weight;
            add_multiple<D>(weighted[row], weight, tiles.v + j * D);
        }
    for (int row = 0; row < COUNT; ++row) {
        const Lanes inverse_sum = 1.f / sum[row];
        statistics[i + row] = {largest[row], inverse_sum};
        for (int e = 0; e < D; ++e) tiles.out[(i + row) * D + e] = weighted[row][e] * inverse_sum;
    }
}

template <int D>
bool forward(const Shape& shape, const float* q, const float* k, const float* v, float* out, Statistics* statistics) {
    const int64_t tokens = shape.tokens;
    Scratch scratch(ForwardTiles<D>::size(tokens));
    if (scratch.missing()) return false;
    const ForwardTiles<D> tiles(scratch, tokens);
    for (int64_t group = 0; group * LANES < shape.batch * shape.heads; ++group, statistics += tokens) {
        const Places q_at(group, shape, shape.q_stride), k_at(group, shape, shape.k_stride);
        const Places v_at(group, shape, shape.v_stride), out_at(group, shape, shape.heads * D);
        read_tiles<D>({{q, q_at, tiles.q}, {k, k_at, tiles.k}, {v, v_at, tiles.v}}, tokens);
        scale_tile(tiles.q, tokens * D, LOG2_E / __builtin_sqrt(D));
        int64_t i = 0;
        for (; i + ROWS <= tokens; i += ROWS) attend<D, ROWS>(tiles, i, tokens, statistics);
        for (; i < tokens; ++i) attend<D, 1>(tiles, i, tokens, statistics);
        write_tiles<D>({{tiles.out, out_at, out}}, tokens);
    }
    return true;
}

// ---- Backward -------------------------------------------------------------------------------------------------------

template <int D>
struct BackwardTiles {
    Lanes *q, *k, *v, *out, *d_out, *dq, *dk, *dv, *delta;  // delta: per query, the product of out and d_out

    BackwardTiles(Scratch& scratch, int64_t tokens)
        : q(scratch.take(tokens * D)), k(scratch.take(tokens * D)), v(scratch.take(tokens * D)),
          out(scratch.take(tokens * D)), d_out(scratch.take(tokens * D)), dq(out),  // each query's out is read before
          dk(scratch.take(tokens * D)), dv(scratch.take(tokens * D)), delta(scratch.take(tokens)) {}

    static int64_t size(int64_t tokens) { return tokens * (7 * D + 1); }
};

// What COUNT queries from the i-th on contribute to all gradients, with p the probabilities:
// d_logit = p * (d_out . v - delta), dq += d_logit * k, dk += d_logit * q, dv += p * d_out.
template <int D, int COUNT>
inline void attend_backward(const BackwardTiles<D>& tiles, int64_t i, int64_t tokens, const Statistics* statistics) {
    const Lanes *q = tiles.q + i * D, *d_out = tiles.d_out + i * D;
    Lanes dq[COUNT][D] = {};
    for (int64_t j = 0; j < tokens; ++j) {
        const Lanes *k = tiles.k + j * D, *v = tiles.v + j * D;
        for (int row = 0; row < COUNT; ++row) {
            const Statistics& at = statistics[i + row];
            const Lanes p = power_of_two(dot<D>(q + row * D, k) - at.largest) * at.inverse_sum;
            const Lanes d_logit = p * (dot<D>(d_out + row * D, v) - tiles.delta[i + row]);
            add_multiple<D>(tiles.dv + j * D, p, d_out + row * D);
            add_multiple<D>(dq[row], d_logit, k);
            add_multiple<D>(tiles.dk + j * D, d_logit, q + row * D);
        }
    }
    for (int row = 0; row < COUNT; ++row)
        for (int e = 0; e < D; ++e) tiles.dq[(i + row) * D + e] = dq[row][e];
}

template <int D>
bool backward(const Shape& shape, const float* q, const float* k, const float* v, const float* out,
              const Statistics* statistics, const float* d_out, float* dq, float* dk, float* dv) {
    const int64_t tokens = shape.tokens;
    Scratch scratch(BackwardTiles<D>::size(tokens));
    if (scratch.missing()) return false;
    const BackwardTiles<D> tiles(scratch, tokens);
    for (int64_t group = 0; group * LANES < shape.batch * shape.heads; ++group, statistics += tokens) {
        const Places q_at(group, shape, shape.q_stride), k_at(group, shape, shape.k_stride);
        const Places v_at(group, shape, shape.v_stride), out_at(group, shape, shape.heads * D);
        read_tiles<D>({{q, q_at, tiles.q}, {k, k_at, tiles.k}, {v, v_at, tiles.v}}, tokens);
        read_tiles<D>({{out, out_at, tiles.out}, {d_out, out_at, tiles.d_out}}, tokens);
        scale_tile(tiles.q, tokens * D, LOG2_E / __builtin_sqrt(D));
        for (int64_t i = 0; i < tokens; ++i) tiles.delta[i] = dot<D>(tiles.out + i * D, tiles.d_out + i * D);
        std::memset(tiles.dk, 0, tokens * D * sizeof(Lanes));
        std::memset(tiles.dv, 0, tokens * D * sizeof(Lanes));
        int64_t i = 0;
        for (; i + ROWS <= tokens; i += ROWS) attend_backward<D, ROWS>(tiles, i, tokens, statistics);
        for (; i < tokens; ++i) attend_backward<D, 1>(tiles, i, tokens, statistics);
        scale_tile(tiles.dq, tokens * D, 1 / __builtin_sqrt(D));
        scale_tile(tiles.dk, tokens * D, LN_2);
        write_tiles<D>({{tiles.dq, q_at, dq}, {tiles.dk, k_at, dk}, {tiles.dv, v_at, dv}}, tokens);
    }
    return true;
}

// ---- One function for every head_dim --------------------------------------------------------------------------------

template <size_t... D>
constexpr auto every_forward(std::index_sequence<D...>) {
    return std::array{&forward<int(D) + 1>...};
}

template <size_t... D>
constexpr auto every_backward(std::index_sequence<D...>) {
    return std::array{&backward<int(D) + 1>...};
}

constexpr auto FORWARD = every_forward(std::make_index_sequence<LARGEST_HEAD_DIM>());
constexpr auto BACKWARD = every_backward(std::make_index_sequence<LARGEST_HEAD_DIM>());

}  // namespace

// What Python calls. Every tensor is float32 and holds a token's heads side by side; `statistics` has 2 * tokens
// numbers for every pair of every group, aligned to 64 bytes. Forward and backward return 0 where memory ran out.
extern "C" {

int attention_lanes_width() { return LANES; }

int attention_lanes_forward(const Shape* shape, const float* q, const float* k, const float* v, float* out,
                            float* statistics) {
    return FORWARD[shape->head_dim - 1](*shape, q, k, v, out, reinterpret_cast<Statistics*>(statistics));
}

int attention_lanes_backward(const Shape* shape, const float* q, const float* k, const float* v, const float* out,
                             const float* statistics, const float* d_out, float* dq, float* dk, float* dv) {
    return BACKWARD[shape->head_dim - 1](*shape, q, k, v, out, reinterpret_cast<const Statistics*>(statistics), d_out,
                                         dq, dk, dv);
}
}
