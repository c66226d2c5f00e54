import io.echotrain.Batch;

/** A program whose first object is a batch. */
final class FirstUse {
  private FirstUse() {}

  public static void main(String[] arguments) {
    Batch batch = new Batch().set("x", new int[] {1}, 1);
    if (batch.ints("x").get(0) != 1) throw new AssertionError(batch);
  }
}
