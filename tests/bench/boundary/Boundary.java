import io.echotrain.Batch;
import io.echotrain.Pipeline;
import io.echotrain.Stages;
import java.util.Arrays;

/** The Java side of boundary_bench.py: see boundary.c. */
public final class Boundary {
  private static final int ROUNDS = 40, WARM_UP = 60, TAKEN = 400;  // the JIT compiler needs more rounds
  private static long sum;

  private static void images(String root) {
    try (Pipeline pipeline = Pipeline.builder()
            .add(Stages.folder(root), Stages.repeat().count(10), Stages.decode(),
                Stages.batch(32).dropRemainder(true))
            .option("threads", 2).option("epochs", 1).build()) {
      long begin = System.nanoTime();
      long batches = 0;
      for (Batch batch : pipeline) {
        sum += batch.buffer("image").get(0);
        ++batches;
      }
      System.out.printf("%.1f%n", 32e9 * batches / (System.nanoTime() - begin));
    }
  }

  private static void ready(String root) throws InterruptedException {
    double[] us = new double[ROUNDS];
    try (Pipeline pipeline = Pipeline.builder()
            .add(Stages.folder(root), Stages.repeat().count(100000), Stages.batch(1))
            .option("threads", 2).option("epochs", 1).option("prefetch", 1024).build()) {
      for (int round = -WARM_UP; round < ROUNDS; ++round) {
        Thread.sleep(100);  // in which the pipeline fills its prefetch queue
        long begin = System.nanoTime();
        for (int i = 0; i < TAKEN; ++i) {
          try (Batch batch = pipeline.next()) {
            sum += batch.buffer("png").get(0);
          }
        }
        if (round >= 0) us[round] = 1e-3 * (System.nanoTime() - begin) / TAKEN;
      }
    }
    Arrays.sort(us);
    System.out.printf("%.4f%n", us[ROUNDS / 2]);
  }

  public static void main(String[] args) throws Exception {
    if (args[0].equals("images")) images(args[1]);
    else ready(args[1]);
    System.err.println("checksum " + sum);
  }
}
