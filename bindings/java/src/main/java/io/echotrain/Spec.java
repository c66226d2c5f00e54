package io.echotrain;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * A stage, layer, optimizer or schedule with its options. Made by {@link Stages}, {@link Layers},
 * {@link Optimizers} and {@link Schedules}; checked where it is used.
 */
public class Spec {
  private final String kind;
  private final String name;
  private final Map<String, Object> options = new LinkedHashMap<>();

  protected Spec(String kind, String name) {
    this.kind = kind;
    this.name = name;
  }

  /** Sets an option by its name in the schema. */
  public Spec set(String option, Object value) {
    options.put(option, value);
    return this;
  }

  public String kind() { return kind; }

  public String name() { return name; }

  String json() { return Json.write(options); }

  @Override
  public String toString() { return name + " " + json(); }
}
