package io.echotrain;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * A stage, layer, model, optimizer or schedule with its options. It is created by {@link Stages},
 * {@link Layers}, {@link Models}, {@link Optimizers} and {@link Schedules}, and validated where it
 * is used.
 */
public class Spec {
  private final String kind;
  private final String name;
  private final Map<String, Object> options = new LinkedHashMap<>();
  private final List<Spec> following = new ArrayList<>();

  protected Spec(String kind, String name) {
    this.kind = kind;
    this.name = name;
  }

  /** Sets an option by its name in the schema. */
  public Spec set(String option, Object value) {
    options.put(Objects.requireNonNull(option, "option"), value);
    return this;
  }

  /**
   * Adds a stage after this source, for sources within {@code mix} or {@code zip}: the stage maps
   * the source's samples before they are combined.
   */
  public Spec then(Spec stage) {
    following.add(Objects.requireNonNull(stage, "stage"));
    return this;
  }

  /**
   * Returns the JSON form as an element of an option: an object, or a list of this source and the
   * stages that follow it.
   */
  String branchJson() {
    StringBuilder out = new StringBuilder(stageJson());
    for (Spec stage : following) out.append(", ").append(stage.stageJson());
    return following.isEmpty() ? out.toString() : "[" + out + "]";
  }

  private String stageJson() {
    Map<String, Object> all = new LinkedHashMap<>();
    all.put(kind.substring(0, kind.length() - 1), name);  // "stage", "layer"
    all.putAll(options);
    return Json.write(all);
  }

  public String kind() { return kind; }

  public String name() { return name; }

  String json() { return Json.write(options); }

  @Override
  public String toString() { return name + " " + json(); }
}
