package io.echotrain;

import io.echotrain.internal.ModelHandle;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/**
 * Layers, or a ready-made model of {@link Models}; the loss is softmax cross-entropy unless set.
 */
public final class Model implements AutoCloseable {
  final ModelHandle handle;

  /** A sequence of layers. A layer may read others by their names ({@code input("a", "b")}). */
  public Model(Spec... layers) {
    this(new String[] {}, layers);
  }

  /** Layers that read these fields of a batch; "image" if none is named. */
  public Model(String[] inputs, Spec... layers) {
    Natives.load();
    handle = new ModelHandle(json(inputs, layers));
    Natives.free(handle, handle.release());
  }

  private Model(ModelHandle handle) {
    this.handle = handle;
    Natives.free(handle, handle.release());
  }

  /**
   * Creates a model from an ONNX file, for fine-tuning: a trainer begins with the file's weights.
   * {@code until} cuts the network behind a value, a node or a layer of that name ("": the file's
   * output), and {@code layers} follow there. Fields have the names of the file's inputs; images
   * are [N, C, H, W] in the file and [N, H, W, C] here.
   */
  public static Model fromOnnx(String path, String until, Spec... layers) {
    Objects.requireNonNull(path, "path");
    Objects.requireNonNull(until, "until");
    Natives.load();
    requireLayers(layers);
    Map<String, Object> spec = new LinkedHashMap<>();
    spec.put("onnx", path);
    if (!until.isEmpty()) spec.put("until", until);
    spec.put("layers", layers);
    return new Model(new ModelHandle(Json.write(spec)));
  }

  /**
   * Creates a model from the form that jobs use: layers, inputs and loss, or the name of a
   * ready-made model with its options.
   */
  public static Model fromJson(String json) {
    Natives.load();
    return new Model(new ModelHandle(json));
  }

  private static String json(String[] inputs, Spec[] layers) {
    Objects.requireNonNull(inputs, "inputs");
    Objects.requireNonNull(layers, "layers");
    if (layers.length == 1 && layers[0] != null && layers[0].kind().equals("models")) return layers[0].branchJson();
    requireLayers(layers);
    Map<String, Object> spec = new LinkedHashMap<>();
    spec.put("layers", layers);
    if (inputs.length > 0) spec.put("inputs", inputs);
    return Json.write(spec);
  }

  private static void requireLayers(Spec[] layers) {
    for (Spec layer : Objects.requireNonNull(layers, "layers")) {
      if (!Objects.requireNonNull(layer, "layer").kind().equals("layers")) {
        throw new IllegalArgumentException(layer.name() + " is not a layer");
      }
    }
  }

  /**
   * Freezes the parameters whose names match {@code pattern}, such as "conv2d_1.*", where * stands
   * for any characters: training leaves them as they are. Call it before the trainer is created.
   */
  public Model freeze(String pattern) {
    handle.freeze(pattern);
    return this;
  }

  /**
   * Gives dense layers and the projections of attention layers low-rank adapters (LoRA), and
   * freezes all else. Options: {@code layers} (patterns of their names, such as "*.query"), {@code
   * rank}, {@code alpha} (an adapter's result is multiplied by alpha / rank), {@code dropout}, and
   * {@code train} (patterns of parameters that are trained as they are): {@code
   * model.lora(Map.of("layers", new String[] {"*.query", "*.value"}, "rank", 4))}. Call it before
   * the trainer is created.
   */
  public Model lora(Map<String, ?> options) {
    handle.lora(Json.write(new LinkedHashMap<String, Object>(Objects.requireNonNull(options, "options"))));
    return this;
  }

  /**
   * Keeps the frozen weights of products and convolutions in {@code bits} bits in device memory: 8
   * or 4. Call it before the trainer is created.
   */
  public Model quantize(int bits) {
    handle.quantize(bits);
    return this;
  }

  /**
   * Returns layers, shapes and parameters as a table, for samples of these shapes: {@code {"image":
   * [28, 28, 1]}} or {@code {"text": {"dtype": "i32", "shape": [12]}}}, with each field that the
   * model reads.
   */
  public String summary(String fields) { return handle.summary(fields, "text"); }

  /** Returns the model in the form that jobs use. */
  public String json() { return handle.json(); }

  /** Releases the model's memory. Its trainers remain usable. */
  @Override
  public void close() { handle.close(); }

  @Override
  public String toString() { return handle.is_closed() ? "Model(closed)" : "Model(" + json() + ")"; }

  /**
   * Sets the loss: "softmax_cross_entropy" (integer labels), "binary_cross_entropy", "mse", "l1" or
   * "huber".
   */
  public Model loss(String loss) { return loss(loss, Map.of()); }

  /** Sets the loss with options, such as {@code Map.of("label_smoothing", 0.1)}. */
  public Model loss(String loss, Map<String, ?> options) {
    handle.loss(loss, Json.write(new LinkedHashMap<String, Object>(Objects.requireNonNull(options, "options"))));
    return this;
  }
}
