// Writes out what weights.cuh decodes: one block of one warp a row tile.
#include "weights.cuh"

using Form = Weights<FORMAT, GROUP>;

extern "C" __global__ void decode(const unsigned char* packed, const unsigned char* scales, int column_tiles,
                                  float* out) {
  int lane = threadIdx.x, g = lane / 4, q = lane % 4;
  int columns = column_tiles * TILE_COLUMNS;
  // Decoded values are powers of two away from the value; both factors together are in range.
  float restore = Form::restore(), scale = Form::activation_scale();
  for (int c = 0; c < column_tiles; ++c) {
    int64_t number = static_cast<int64_t>(blockIdx.x) * column_tiles + c;
    Form::Tile tile = Form::load(packed + number * Form::TILE_BYTES + lane * 16,
                                 scales + number * Form::SCALE_BYTES + lane / 4 * (Form::SCALE_BYTES / 8));
    for (int j = 0; j < TILE_STEPS; ++j) {
      uint32_t a[4];
      Form::decode(tile, j, a);
      float2 block = Form::HAS_BLOCK_SCALES ? Form::block_scales(tile, j) : make_float2(1, 1);
      for (int i = 0; i < 4; ++i) {
        int row = blockIdx.x * TILE_ROWS + g + 8 * (i % 2);
        int column = c * TILE_COLUMNS + 16 * j + 4 * q + 2 * (i / 2);
        float by = (i % 2 ? block.y : block.x) * restore;
        out[static_cast<int64_t>(row) * columns + column] = bf16_low(a[i]) * scale * by;
        out[static_cast<int64_t>(row) * columns + column + 1] = bf16_high(a[i]) * scale * by;
      }
    }
  }
}
