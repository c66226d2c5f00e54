import io.echotrain.Device;
import io.echotrain.EchoTrainException;
import io.echotrain.EchoTrainException.Code;
import io.echotrain.Job;
import io.echotrain.Transport;
import java.io.IOException;
import java.net.ConnectException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Phaser;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;

/** Several devices in one process, and ranks over a transport that is written in Java: here threads of one process. */
final class Transports {
  private Transports() {}

  static void tests() {
    Behaviour.test("two devices, and two ranks over a transport, train alike", Transports::alike);
    Behaviour.test("what a transport throws ends the run on all ranks", Transports::failures);
    Behaviour.test("a transport may stop and close the run while another thread closes it", Transports::ending);
    Behaviour.test("what needs a function that a transport lacks", Transports::lacking);
  }

  /** Where threads meet with what they bring: copies, which a rank may still read when another has given the meeting up. */
  private static final class Place {
    final ByteBuffer[] brought = new ByteBuffer[2];
    final Phaser phaser = new Phaser(2);
    final Map<Integer, Place> parts = new ConcurrentHashMap<>();
    volatile String why = "nobody came";

    void meet(int rank, ByteBuffer brings, double timeout, Runnable read) throws Exception {
      brought[rank] = brings;
      await(rank, timeout);
      read.run();
      await(rank, timeout);
    }

    private void await(int rank, double timeout) throws Exception {
      int phase = phaser.awaitAdvanceInterruptibly(phaser.arrive(), (long) (timeout * 1e3), TimeUnit.MILLISECONDS);
      if (phase < 0) throw new Transport.RankLost(why, 1 - rank);
    }

    // Also those who come later learn of it.
    void abort(String reason) {
      why = reason;
      phaser.forceTermination();
    }
  }

  private static class Threads extends Transport {
    static final AtomicInteger closed = new AtomicInteger();
    final Place place;

    Threads(Place place, int rank) {
      super(rank, 2);
      this.place = place;
    }

    @Override
    public void allReduce(ByteBuffer data, Number number, Reduction reduction) throws Exception {
      place.meet(rank(), copy(data), timeout(), () -> {
        for (int at = 0; at < data.capacity(); at += number.bytes()) {
          switch (number) {
            case F32 -> data.putFloat(at, (float) of(reduction, place.brought[0].getFloat(at), place.brought[1].getFloat(at)));
            case F64 -> data.putDouble(at, of(reduction, place.brought[0].getDouble(at), place.brought[1].getDouble(at)));
            case I32 -> data.putInt(at, (int) of(reduction, place.brought[0].getInt(at), place.brought[1].getInt(at)));
            default -> data.putLong(at, (long) of(reduction, place.brought[0].getLong(at), place.brought[1].getLong(at)));
          }
        }
      });
    }

    private static ByteBuffer copy(ByteBuffer data) {
      return ByteBuffer.allocate(data.capacity()).order(ByteOrder.nativeOrder()).put(data.duplicate()).rewind();
    }

    // Of two floats, and of the small integers that ranks exchange, the sum as a double is rounded as their own.
    private static double of(Reduction reduction, double a, double b) {
      return reduction == Reduction.SUM ? a + b : reduction == Reduction.MIN ? Math.min(a, b) : Math.max(a, b);
    }

    @Override
    public void allGather(ByteBuffer part, long[] sizes, ByteBuffer data) throws Exception {
      place.meet(rank(), copy(part), timeout(), () -> {
        ByteBuffer to = data.duplicate();
        for (ByteBuffer brought : place.brought) to.put(brought.duplicate());
      });
    }

    @Override
    public void broadcast(ByteBuffer data, int root) throws Exception {
      place.meet(rank(), copy(data), timeout(), () -> {
        if (rank() != root) data.duplicate().put(place.brought[root].duplicate());
      });
    }

    @Override
    public Transport split(int colour, int key) {
      return new Threads(place.parts.computeIfAbsent(colour, c -> new Place()), rank());
    }

    @Override
    public void abort(String reason) {
      place.abort(reason);
    }

    @Override
    public void close() { closed.incrementAndGet(); }
  }

  private static final class Cut extends Threads {
    private final Exception why;
    private int calls;

    Cut(Place place, int rank, Exception why) {
      super(place, rank);
      this.why = why;
    }

    @Override
    public void allReduce(ByteBuffer data, Number number, Reduction reduction) throws Exception {
      if (++calls == 5) throw why;
      super.allReduce(data, number, reduction);
    }
  }

  // The errors of the ranks, null for those that came to the end.
  private static List<Throwable> together(Job job, Transport... ranks) throws Exception {
    Throwable[] errors = new Throwable[ranks.length];
    List<Thread> threads = new ArrayList<>();
    for (Transport rank : ranks) {
      threads.add(new Thread(() -> {
        try (Job.Run run = job.run(Behaviour.device(), Job.Start.NEW, rank)) {
          for (Job.Event event : run) Behaviour.expect(event.step <= 6, event.step);
        } catch (Throwable error) {
          errors[rank.rank()] = error;
        }
      }));
      threads.get(threads.size() - 1).start();
    }
    for (Thread thread : threads) {
      thread.join(120_000);
      Behaviour.expect(!thread.isAlive(), "a rank hangs");
    }
    return java.util.Arrays.asList(errors);
  }

  private static Job job(Path out, String... overrides) {
    String[] all = java.util.Arrays.copyOf(overrides, overrides.length + 3);
    all[overrides.length] = "train.steps=6";
    all[overrides.length + 1] = "output.tensorboard=false";
    all[overrides.length + 2] = "output.dir=" + (out == null ? "\"\"" : out);
    return Job.parse(Behaviour.jobJson(), all);
  }

  private static List<String> losses(Path folder) throws IOException {
    List<String> out = new ArrayList<>();
    for (String line : Files.readAllLines(folder.resolve("metrics.jsonl"))) {
      int at = line.indexOf("\"loss\":");
      if (line.contains("\"kind\":\"step\"")) out.add(line.substring(at, line.indexOf(',', at)));
    }
    return out;
  }

  private static void alike() throws Exception {
    Path devices = Files.createTempDirectory("echotrain-devices"), ranks = Files.createTempDirectory("echotrain-ranks");
    String name = Behaviour.device().name();
    Job.Event last = null;
    try (Job.Run run = job(devices, "parallel.devices=[\"" + name + "\", \"" + name + "\"]")
        .run(Behaviour.device(), Job.Start.NEW)) {
      for (Job.Event event : run) last = event;
    }
    Behaviour.expect(last.step == 6 && last.examples == 6 * 32, last.examples);
    Threads.closed.set(0);
    Place place = new Place();
    List<Throwable> errors = together(job(ranks), new Threads(place, 0), new Threads(place, 1));
    Behaviour.expect(errors.get(0) == null && errors.get(1) == null, errors);
    Behaviour.expect(Threads.closed.get() == 4, Threads.closed);
    Behaviour.expect(losses(devices).size() == 6, losses(devices));
    Behaviour.expect(losses(devices).equals(losses(ranks)), losses(devices) + " and " + losses(ranks));
  }

  private static void failures() throws Exception {
    Place place = new Place();
    List<Throwable> errors = together(job(null), new Threads(place, 0),
        new Cut(place, 1, new IllegalStateException("the wire is cut")));
    EchoTrainException other = (EchoTrainException) errors.get(0), own = (EchoTrainException) errors.get(1);
    Behaviour.expect(own.code() == Code.CALLBACK && own.getCause() instanceof IllegalStateException, own);
    Behaviour.expect(other.code() == Code.RANK_LOST && other.getMessage().contains("the wire is cut"), other);
    place = new Place();
    errors = together(job(null), new Threads(place, 0), new Cut(place, 1, new ConnectException("refused")));
    own = (EchoTrainException) errors.get(1);
    Behaviour.expect(own.code() == Code.RANK_LOST && own.getCause() instanceof ConnectException, own);
  }

  private static void ending() throws Exception {
    for (Consumer<Job.Run> end : List.<Consumer<Job.Run>>of(Job.Run::stop, Job.Run::close)) {
      AtomicReference<Job.Run> run = new AtomicReference<>();
      CountDownLatch held = new CountDownLatch(1), aborted = new CountDownLatch(1);
      final class Ending extends Threads {
        private int gradients;

        Ending(Place place) { super(place, 0); }

        @Override
        public void allReduce(ByteBuffer data, Number number, Reduction reduction) throws Exception {
          if (number == Number.F32 && ++gradients > 1) {  // those of a step that is on its way
            held.countDown();
            aborted.await(60, TimeUnit.SECONDS);  // by close()
            end.accept(run.get());
          }
          super.allReduce(data, number, reduction);
        }

        @Override
        public Transport split(int colour, int key) {
          return new Ending(place.parts.computeIfAbsent(colour, c -> new Place()));
        }

        @Override
        public void abort(String reason) {
          super.abort(reason);
          aborted.countDown();
        }
      }
      Place place = new Place();
      Job job = job(null, "train.steps=1000000000");
      Thread other = new Thread(() -> {
        try (Job.Run its = job.run(Behaviour.device(), Job.Start.NEW, new Threads(place, 1))) {
          for (Job.Event event : its) {}
        } catch (EchoTrainException lost) {
          // The other rank is gone.
        }
      });
      other.start();
      run.set(job.run(Behaviour.device(), Job.Start.NEW, new Ending(place)));
      Iterator<Job.Event> events = run.get().events(1e-9).iterator();
      while (!held.await(1, TimeUnit.SECONDS)) events.next();
      Thread closer = new Thread(run.get()::close);
      closer.setDaemon(true);
      closer.start();
      closer.join(60_000);
      Behaviour.expect(!closer.isAlive(), "the transport waits for close(), which waits for the transport");
      other.join(60_000);
    }
  }

  private static void lacking() throws Exception {
    Device device = Behaviour.device();
    Behaviour.failsWith(Code.UNSUPPORTED, "has no function split: ranks exchange gradients",
        () -> job(null).run(device, Job.Start.NEW, new Transport(0, 1) {}));
    Behaviour.fails(NullPointerException.class, () -> job(null).run(device, Job.Start.NEW, null));
    Behaviour.fails(IllegalArgumentException.class, () -> new Transport(2, 2) {});
    // The run that does not begin is its owner, too.
    Job closed = job(null);
    closed.close();
    Threads.closed.set(0);
    Behaviour.failsWith(Code.STATE, "the job is closed", () -> closed.run(device, Job.Start.NEW, new Threads(new Place(), 0)));
    Behaviour.expect(Threads.closed.get() == 1, Threads.closed);
  }
}
