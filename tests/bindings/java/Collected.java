import io.echotrain.Job;

/** A program that keeps no reference to a job while it is advised on. The tests compile it before it begins. */
final class Collected {
  private Collected() {}

  public static void main(String[] arguments) {
    Thread collector = new Thread(() -> {
      while (true) System.gc();
    });
    collector.setDaemon(true);
    collector.start();
    Behaviour.root = arguments[0];
    String advice = Job.parse(Behaviour.jobJson()).advise(Behaviour.device(), 0.2, false);
    if (!advice.contains("text")) throw new AssertionError(advice);
  }
}
