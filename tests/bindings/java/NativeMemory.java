import io.echotrain.Batch;
import io.echotrain.Device;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;

/** A program whose small calls go on for long. The tests limit its heap, so that other memory shows. */
final class NativeMemory {
  private NativeMemory() {}

  private static long resident() throws IOException {
    return Long.parseLong(Files.readString(Paths.get("/proc/self/statm")).split(" ")[1]) * 4096;
  }

  private static void calls(Device device, int count) {
    float[] values = new float[4];
    try (Batch batch = new Batch()) {
      for (int i = 0; i < count; ++i) {
        batch.set("x", values, 2, 2);
        if (batch.shape("x").length + batch.fields().size() != 3 || device.name().isEmpty()) throw new AssertionError(batch);
      }
    }
  }

  public static void main(String[] arguments) throws IOException {
    try (Device device = Behaviour.device()) {
      calls(device, 20_000);
      // The virtual machine's own memory may grow meanwhile. A leak grows each time.
      for (int attempt = 0; attempt < 3; ++attempt) {
        long before = resident();
        calls(device, 60_000);
        long more = resident() - before;
        System.out.println(more + " bytes more");
        if (more <= 10 << 20) return;
      }
      System.exit(1);
    }
  }
}
