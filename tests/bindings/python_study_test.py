"""Studies."""

import json
import pathlib
import tempfile
import threading

import echotrain as et
from python_case import Case


class StudyTest(Case):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)

    def study(self, steps=4):
        stages = [{"stage": "folder", "root": str(self.root)}, {"stage": "label"}, {"stage": "decode"},
                  {"stage": "batch", "size": 8}, {"stage": "normalize"}]
        study = {"job": {"pipeline": {"stages": stages[:1] + [{"stage": "repeat"}] + stages[1:]},
                         "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]},
                         "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.01},
                         "evaluation": {"pipeline": {"stages": stages}}},
                 "budget": {"steps": steps}, "evaluate": {"every_steps": steps},
                 "search": {"trials": 2, "space": {"schedule.learning_rate": {"from": 0.001, "to": 0.1}}},
                 "for": {"batch": [8, 16]}, "set": ["pipeline.stages.4.size=${batch}"]}
        path = self.out / "small.json"
        path.write_text(json.dumps(study))
        return et.Study(path, {"optimizer.momentum": 0.5})

    def test_runs_and_goes_on(self):
        with self.study() as study:
            self.assertEqual(study.output_dir, "runs/studies/small")
            self.assertEqual(study.json["workloads"][0]["set"][-1], "optimizer.momentum=0.5")
            study.start(device=et.Runtime(0), directory=self.out / "out", parallel=2)
            events = list(study.events())
            self.assertEqual(events[-1]["kind"], "end")
            self.assertEqual(sum(event["kind"] == "trial" for event in events), 4)
            results = study.results()
            self.assertEqual([result["labels"] for result in results], [{"batch": 8}, {"batch": 16}])
            self.assertEqual(results[0]["trials"], 2)
        with self.study() as again:
            self.assertEqual(again.run(device=et.Runtime(0), directory=self.out / "out"), results)
        self.assertIn("<html", (self.out / "out" / "report.html").read_text())
        with self.assertRaisesRegex(et.errors.StateError, "the study is closed"):
            again.results()

    def test_another_thread_stops_it(self):
        study = self.study(10**9)
        study.start(device=et.Runtime(0), directory=self.out / "out")
        threading.Timer(0.2, study.stop).start()
        self.assertEqual(list(study.events())[-1]["done"], 0)
        study.close()

    def test_errors_name_the_key(self):
        path = self.out / "wrong.json"
        path.write_text('{"jobb": {}}')
        with self.assertRaisesRegex(et.EchoTrainError, "did you mean 'job'"):
            et.Study(path)


if __name__ == "__main__":
    import unittest
    unittest.main()
