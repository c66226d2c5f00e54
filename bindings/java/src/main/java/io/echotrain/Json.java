package io.echotrain;

import java.util.Map;

/** Writes options as JSON. */
final class Json {
  private Json() {}

  static String write(Map<String, Object> values) {
    StringBuilder out = new StringBuilder("{");
    for (Map.Entry<String, Object> entry : values.entrySet()) {
      if (out.length() > 1) out.append(", ");
      if (entry.getKey() == null) throw new IllegalArgumentException("the name of an option is null");
      text(out, entry.getKey());
      out.append(": ");
      value(out, entry.getKey(), entry.getValue());
    }
    return out.append("}").toString();
  }

  private static void value(StringBuilder out, String key, Object value) {
    if (value instanceof Boolean || value instanceof Integer || value instanceof Long) {
      out.append(value);
    } else if (value instanceof Number) {
      number(out, key, ((Number) value).doubleValue());
    } else if (value instanceof double[]) {
      String comma = "[";
      for (double number : (double[]) value) {
        number(out.append(comma), key, number);
        comma = ", ";
      }
      out.append(comma.equals("[") ? "[]" : "]");
    } else if (value instanceof Spec[]) {
      String comma = "[";
      for (Spec spec : (Spec[]) value) {
        out.append(comma).append(element(key, spec).branchJson());
        comma = ", ";
      }
      out.append(comma.equals("[") ? "[]" : "]");
    } else if (value instanceof String[]) {
      String comma = "[";
      for (String item : (String[]) value) {
        text(out.append(comma), element(key, item));
        comma = ", ";
      }
      out.append(comma.equals("[") ? "[]" : "]");
    } else if (value instanceof long[]) {
      out.append(java.util.Arrays.toString((long[]) value));
    } else if (value instanceof CharSequence || value instanceof java.nio.file.Path
        || value instanceof java.io.File) {
      text(out, value.toString());
    } else {
      throw new IllegalArgumentException("option '" + key + "' is a "
          + (value == null ? "null" : value.getClass().getName())
          + "; options are numbers, text, booleans or arrays of double, long, String or Spec");
    }
  }

  private static <T> T element(String key, T element) {
    if (element == null) throw new IllegalArgumentException("option '" + key + "' has a null in its array");
    return element;
  }

  private static void number(StringBuilder out, String key, double number) {
    if (Double.isNaN(number) || Double.isInfinite(number)) {
      throw new IllegalArgumentException("option '" + key + "' is " + number);
    }
    out.append(number);
  }

  private static void text(StringBuilder out, String text) {
    out.append('"');
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < 0x20) {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    out.append('"');
  }
}
