package io.echotrain;

import io.echotrain.internal.ModelHandle;

/** Layers in a row; the loss is softmax cross-entropy unless set. */
public final class Model {
  final ModelHandle handle;

  public Model(Spec... layers) {
    Natives.load();
    handle = new ModelHandle();
    Natives.free(this, handle::delete);
    for (Spec layer : layers) {
      if (!layer.kind().equals("layers")) throw new IllegalArgumentException(layer.name() + " is no layer");
      handle.add(layer.name(), layer.json());
    }
  }

  /** "softmax_cross_entropy" (integer labels) or "mse". */
  public Model loss(String loss) {
    handle.loss(loss, "{}");
    return this;
  }
}
