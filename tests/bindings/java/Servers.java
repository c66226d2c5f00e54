import io.echotrain.EchoTrainException.Code;
import io.echotrain.Job;
import io.echotrain.Server;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;

/** A parameter server and its workers, threads of one process. */
final class Servers {
  private Servers() {}

  static void tests() {
    Behaviour.test("workers train on a parameter server", Servers::served);
    Behaviour.test("a parameter server is stopped", Servers::stopped);
  }

  private static Job job(String... overrides) throws Exception {
    String parallel = "parallel={\"algorithm\": \"downpour\", \"size\": 2, \"consistency\": \"sequential\", \"timeout\": 30, "
        + "\"rendezvous\": \"file:" + Files.createTempDirectory("echotrain-meeting") + "\"}";
    List<String> all = new ArrayList<>(List.of(parallel, "train.steps=6", "output.dir=\"\""));
    Collections.addAll(all, overrides);
    return Job.parse(Behaviour.jobJson(), all.toArray(new String[0]));
  }

  private static void served() throws Exception {
    Job job = job();
    List<Object> outcomes = Collections.synchronizedList(new ArrayList<>());
    List<Thread> workers = new ArrayList<>();
    CyclicBarrier both = new CyclicBarrier(2);
    try (Server server = new Server(job, 0)) {
      Behaviour.expect(!server.await(0), "nobody has come");
      for (int i = 0; i < 2; ++i) {
        workers.add(new Thread(() -> {
          try (Job.Run run = job.run(Behaviour.device(), Job.Start.NEW)) {
            both.await(60, TimeUnit.SECONDS);  // the server ends when all who have come have finished
            long steps = 0;
            for (Job.Event event : run) steps = event.step;
            outcomes.add(steps);
          } catch (Throwable error) {
            outcomes.add(error);
          }
        }));
        workers.get(i).start();
      }
      Behaviour.expect(server.await(120), "the workers do not end");
      Server.Status status = server.status();
      Behaviour.expect(status.joined == 2 && status.finished == 2 && status.workers == 0, status.joined);
      Behaviour.expect(status.updates == 12, status.updates);
    }
    for (Thread worker : workers) worker.join(60_000);
    Behaviour.expect(outcomes.equals(List.of(6L, 6L)), outcomes);
  }

  private static void stopped() throws Exception {
    Server server = new Server(job(), 0);
    server.stop();
    Behaviour.expect(server.await(60), "it goes on");
    server.close();
    Behaviour.failsWith(Code.STATE, "the server is closed", server::status);
    Behaviour.failsWith(Code.INVALID_ARGUMENT, "shard 3 of 1", () -> new Server(job(), 3));
    Behaviour.failsWith(Code.INVALID_ARGUMENT, "parallel.algorithm", () -> new Server(job("parallel.algorithm=synchronous"), 0));
  }
}
