import io.echotrain.EchoTrainException.Code;
import io.echotrain.Study;
import java.nio.file.Files;
import java.nio.file.Path;

/** Studies of a small job. */
final class Studies {
  private Studies() {}

  static void tests() {
    Behaviour.test("a study runs and goes on", Studies::runs);
    Behaviour.test("a study is stopped", Studies::stopped);
  }

  private static Path file(long steps) throws Exception {
    String job = Behaviour.jobJson();
    String pipeline = job.substring("{\"pipeline\": ".length(), job.indexOf(", \"model\""));
    String evaluated = job.substring(0, job.length() - 1) + ", \"evaluation\": {\"pipeline\": " + pipeline + "}}";
    Path path = Files.createTempDirectory("echotrain-study").resolve("small.json");
    Files.writeString(path, "{\"job\": " + evaluated + ", \"budget\": {\"steps\": " + steps + "}, \"evaluate\": "
        + "{\"every_steps\": " + steps + "}, \"search\": {\"trials\": 2, \"space\": {\"schedule.learning_rate\": "
        + "{\"from\": 0.001, \"to\": 0.1}}}}");
    return path;
  }

  private static void runs() throws Exception {
    Path path = file(4);
    String out = path.resolveSibling("out").toString();
    for (int part = 0; part < 2; ++part)
      try (Study study = Study.load(path.toString(), "optimizer.momentum=0.5")) {
        Behaviour.expect(study.outputDir().equals("runs/studies/small"), study.outputDir());
        Behaviour.expect(study.json().contains("optimizer.momentum=0.5"), study.json());
        study.start(Behaviour.device(), out, 2, false);
        int trials = 0;
        String last = null;
        for (String event; (event = study.nextEvent(1)) != null; last = event)
          if (event.startsWith("{\"kind\":\"trial\"")) ++trials;
        Behaviour.expect(trials == (part == 0 ? 2 : 0), trials);
        Behaviour.expect(last.startsWith("{\"kind\":\"end\",\"done\":2,"), last);
        study.writeReport(out);
        Behaviour.expect(Files.size(Path.of(out, "report.html")) > 1000, out);
        Behaviour.expect(study.results(out).contains("\"trials\":2"), study.results(out));
      }
  }

  private static void stopped() throws Exception {
    Path path = file(1_000_000_000L);
    Study study = Study.load(path.toString());
    study.start(Behaviour.device(), path.resolveSibling("out").toString(), 1, false);
    study.nextEvent(0.1);
    study.stop();
    String last = null;
    for (String event; (event = study.nextEvent(1)) != null; last = event) {}
    Behaviour.expect(last.startsWith("{\"kind\":\"end\",\"done\":0,"), last);
    study.close();
    Behaviour.failsWith(Code.STATE, "the study is closed", () -> study.results(""));
    Behaviour.failsWith(Code.INVALID_ARGUMENT, "neither a section",
        () -> Study.load(path.toString(), "no key=value"));
  }
}
