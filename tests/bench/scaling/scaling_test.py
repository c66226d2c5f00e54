#!/usr/bin/env python3
"""The scaling model against what is known of its models, and against cases that are easy to work out."""

import dataclasses
import unittest

import cost
import workloads

MACHINE = cost.Machine(flops=1e14, memory=80e9, host=20e9, network=12.5e9, latency=2e-5)


class Workloads(unittest.TestCase):
    def test_resnet50_is_that_of_the_paper(self):
        resnet = workloads.resnet50()
        self.assertEqual(resnet.parameters, 25_557_032)
        self.assertAlmostEqual(resnet.flops / 3 / 2, 4.09e9, delta=0.03e9)  # multiplications and additions

    def test_the_transformer_has_a_billion(self):
        self.assertAlmostEqual(workloads.transformer().parameters, 1.01e9, delta=0.01e9)


class Cost(unittest.TestCase):
    def test_one_machine_only_computes(self):
        for workload in (workloads.resnet50(), workloads.transformer()):
            step = cost.step(workload, 8, cost.Plan(), MACHINE)
            self.assertAlmostEqual(step.seconds, 8 * workload.flops / MACHINE.flops)
            self.assertAlmostEqual(cost.efficiency(workload, 8, 1, step.seconds, MACHINE), 1)

    def test_an_endless_network_exposes_nothing(self):
        machine = dataclasses.replace(MACHINE, host=1e18, network=1e18, latency=0)
        step = cost.step(workloads.resnet50(), 64 * 32, cost.Plan(cost.Mesh(64)), machine)
        self.assertAlmostEqual(step.seconds, step.compute, places=6)

    def test_without_overlap_all_of_the_exchange_is_exposed(self):
        machine = dataclasses.replace(MACHINE, overlaps=False)
        resnet = workloads.resnet50()
        plan = cost.Plan(cost.Mesh(4), bucket=1e12)
        step = cost.step(resnet, 4 * 32, plan, machine)
        self.assertAlmostEqual(step.seconds - step.compute, cost.all_reduce(4 * resnet.parameters, 4, machine))

    def test_buckets_hold_every_gradient_once_in_the_order_of_the_backward_pass(self):
        resnet = workloads.resnet50()
        parts = cost.buckets(resnet.layers, 4e6)
        self.assertEqual(sum(count for count, _ in parts), resnet.parameters)
        self.assertEqual([share for _, share in parts], sorted(share for _, share in parts))
        self.assertTrue(all(4 * count >= 4e6 for count, _ in parts[:-1]))
        self.assertAlmostEqual(parts[-1][1], 1)

    def test_stages_share_out_the_layers(self):
        layers = workloads.transformer().layers
        parts = cost.stages(layers, 4)
        self.assertEqual(tuple(layer for part in parts for layer in part), layers)
        work = [sum(layer.flops for layer in part) for part in parts]
        self.assertLess(max(work) / min(work), 1.7)

    def test_a_pipelines_bubble_is_that_of_the_formula(self):
        machine = dataclasses.replace(MACHINE, host=1e18, network=1e18, latency=0, memory=1e18)
        block = workloads.transformer().layers[1]
        even = workloads.Workload("even", "sequence", (block,) * 8, 16)
        step = cost.step(even, 16, cost.Plan(cost.Mesh(1, 4), micro_batches=16), machine)
        self.assertAlmostEqual(cost.efficiency(even, 16, 4, step.seconds, machine), 16 / (16 + 3), places=6)

    def test_latency_is_what_a_ring_of_many_ranks_pays(self):
        ring, halving = (cost.all_reduce(4e6, 1000, MACHINE, how) for how in ("ring", "halving"))
        self.assertAlmostEqual(ring - halving, (2 * 999 - 2 * 10) * MACHINE.latency)

    def test_sharded_state_takes_less_memory(self):
        transformer = workloads.transformer()
        sizes = [cost.step(transformer, 8, cost.Plan(cost.Mesh(8), sharded=n), MACHINE).memory for n in (0, 1, 2)]
        self.assertAlmostEqual(sizes[0] - sizes[1], 7 / 8 * 8 * transformer.parameters, delta=1)
        self.assertAlmostEqual(sizes[1] - sizes[2], 7 / 8 * 4 * transformer.parameters, delta=1)

    def test_the_best_mesh_fits_and_uses_every_machine(self):
        transformer = workloads.transformer(depth=60, width=4096)
        plan, step = cost.best(transformer, 512, 64, MACHINE)
        self.assertEqual(plan.mesh.size, 64)
        self.assertLessEqual(step.memory, MACHINE.memory)
        self.assertGreater(plan.mesh.pipeline * plan.mesh.tensor, 1, "the model does not fit one machine")
        self.assertIsNone(cost.best(transformer, 512, 64, MACHINE, allowed=lambda mesh: mesh.data == 64))


if __name__ == "__main__":
    unittest.main()
