import io.echotrain.Batch;
import io.echotrain.Device;
import io.echotrain.EchoTrainException;
import io.echotrain.Layers;
import io.echotrain.Model;
import io.echotrain.Optimizers;
import io.echotrain.Trainer;
import java.nio.FloatBuffer;
import java.util.Arrays;
import java.util.Random;

/**
 * A generative adversarial network (Goodfellow et al. 2014) that learns to draw points from a ring of eight clusters,
 * in a training loop of its own: the discriminator is trained by whole steps, the generator pass by pass, through the
 * discriminator.
 *
 * <pre>java -cp echotrain.jar:echotrain-natives.jar Gan.java [STEPS]</pre>
 */
public final class Gan {
  private static final int CLUSTERS = 8;
  private static final int NOISE = 16;
  private static final int BATCH = 256;
  private static final double RADIUS = 2;
  private static final double SPREAD = 0.1;

  private final Random random = new Random(1);

  private static double centre(int cluster, int axis) {
    double angle = 2 * Math.PI * cluster / CLUSTERS;
    return RADIUS * (axis == 0 ? Math.cos(angle) : Math.sin(angle));
  }

  private Batch noise(int count) {
    float[] values = new float[count * NOISE];
    for (int i = 0; i < values.length; ++i) values[i] = (float) random.nextGaussian();
    return new Batch().set("noise", values, count, NOISE);
  }

  /** Fills the first {@code count} points with the x and y of real ones. */
  private void drawRealPoints(float[] points, int count) {
    for (int i = 0; i < count; ++i) {
      int cluster = random.nextInt(CLUSTERS);
      for (int axis = 0; axis < 2; ++axis)
        points[2 * i + axis] = (float) (centre(cluster, axis) + SPREAD * random.nextGaussian());
    }
  }

  private static Model network(String field, int outputs, String loss) {
    return new Model(new String[] {field}, Layers.dense(64).activation("relu"), Layers.dense(64).activation("relu"),
        Layers.dense(outputs)).loss(loss);
  }

  /**
   * Says which share of the points lies within four standard deviations of a cluster, and how many clusters have at
   * least 2 % of the points.
   */
  private static String quality(FloatBuffer points) {
    int count = points.remaining() / 2;
    int[] near = new int[CLUSTERS];
    for (int i = 0; i < count; ++i)
      for (int c = 0; c < CLUSTERS; ++c)
        if (Math.hypot(points.get(2 * i) - centre(c, 0), points.get(2 * i + 1) - centre(c, 1)) < 4 * SPREAD) ++near[c];
    return String.format("%3d %% of the points near a cluster, %d of %d clusters",
        100 * Arrays.stream(near).sum() / count, Arrays.stream(near).filter(n -> 50 * n >= count).count(), CLUSTERS);
  }

  private void train(int steps) {
    float[] isReal = new float[2 * BATCH];
    Arrays.fill(isReal, 0, BATCH, 1);
    try (Device device = new Device();
        Trainer generator = new Trainer(device, network("noise", 2, "mse"), Optimizers.adam().beta1(0.5), 1e-3, 1);
        Trainer discriminator = new Trainer(device, network("point", 1, "binary_cross_entropy"),
            Optimizers.adam().beta1(0.5), 1e-3, 2)) {
      for (int step = 1; step <= steps; ++step) {
        float[] both = new float[4 * BATCH];  // the real points, then the generated ones
        drawRealPoints(both, BATCH);
        try (Batch noise = noise(BATCH); Batch generated = generator.forward(noise)) {
          generated.floats("output").get(both, 2 * BATCH, 2 * BATCH);
        }
        // Noise in front of the discriminator, less and less of it, keeps the generator from covering a single cluster
        // (Sønderby et al. 2017).
        double blur = Math.max(0.1, 1 - step / (0.8 * steps));
        for (int i = 0; i < both.length; ++i) both[i] += (float) (blur * random.nextGaussian());

        double loss;
        try (Batch labelled = new Batch().set("point", both, 2 * BATCH, 2).set("label", isReal, 2 * BATCH, 1)) {
          discriminator.step(labelled);
          loss = discriminator.result(/*wait=*/true).loss;
        }
        float[] points = Arrays.copyOfRange(both, 2 * BATCH, 4 * BATCH);
        try (Batch generated = new Batch().set("point", points, BATCH, 2);
            Batch scores = discriminator.forward(generated, /*inputGradients=*/true);
            Batch scoreGradient = new Batch().set("output", lossGradient(scores.floats("output")), BATCH, 1);
            Batch inputs = discriminator.backwardToInputs(scoreGradient, /*accumulate=*/false)) {
          inputs.floats("point").get(points);
        }
        try (Batch pointGradient = new Batch().set("output", points, BATCH, 2)) {
          generator.backward(pointGradient);
          generator.update();
        }
        if (step % Math.max(1, steps / 10) == 0)
          try (Batch noise = noise(2000); Batch generated = generator.predict(noise)) {
            System.out.printf("step %5d: discriminator's loss %.3f, %s%n", step, loss,
                quality(generated.floats("output")));
          }
      }
    }
  }

  /** The generator's loss is -log sigmoid(score), averaged over the batch: it wants its points to be taken as real. */
  private static float[] lossGradient(FloatBuffer scores) {
    float[] gradient = new float[BATCH];
    for (int i = 0; i < BATCH; ++i) gradient[i] = (float) ((1 / (1 + Math.exp(-scores.get(i))) - 1) / BATCH);
    return gradient;
  }

  public static void main(String[] arguments) {
    int steps = arguments.length == 0 ? 3000 : arguments.length == 1 && arguments[0].matches("[1-9]\\d{0,8}")
        ? Integer.parseInt(arguments[0]) : 0;
    if (steps == 0) {
      System.err.println("usage: Gan [STEPS]");
      System.exit(2);
    }
    try {
      new Gan().train(steps);
    } catch (EchoTrainException error) {
      System.err.println(error.code() + ": " + error.getMessage());
      System.exit(1);
    }
  }
}
