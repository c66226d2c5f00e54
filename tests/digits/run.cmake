# Draws digits, packs them, and trains the quickstart's job through the command line until it classifies
# 95 % of images it has not seen. Variables: PAINTER, ECHOTRAIN, ROOT, WORK.
file(REMOVE_RECURSE ${WORK})
include(${CMAKE_CURRENT_LIST_DIR}/../support/run.cmake)

run(${PAINTER} ${WORK}/png/train 4000 1)
run(${PAINTER} ${WORK}/png/test 800 2)
file(MAKE_DIRECTORY ${WORK}/data)
run(${ECHOTRAIN} pack ${WORK}/png/train ${WORK}/data/train)
run(${ECHOTRAIN} pack ${WORK}/png/test ${WORK}/data/test)

set(job train ${ROOT}/samples/jobs/quickstart.json --set data=${WORK}/data --set out=${WORK}/run
    --set train.seconds=0 --set train.steps=600 --set evaluation.target_accuracy=0.95 --set output.checkpoint_every_steps=100)
run(${ECHOTRAIN} ${job})
message(STATUS "${last_output}")
if(NOT last_output MATCHES "test accuracy 9[5-9]")
  message(FATAL_ERROR "the target of 95 % was not reached:\n${last_output}")
endif()

# The checkpoint evaluates to the same accuracy in another process.
string(REGEX MATCH "test accuracy ([0-9.]+)" _ "${last_output}")
set(accuracy ${CMAKE_MATCH_1})
list(REMOVE_AT job 0)
run(${ECHOTRAIN} eval ${job})
if(NOT last_output MATCHES "accuracy ${accuracy} %")
  message(FATAL_ERROR "trained to ${accuracy} %, but the checkpoint gives: ${last_output}")
endif()
run(${ECHOTRAIN} report run=${WORK}/run/metrics.jsonl --target 0.95 --out ${WORK}/report.html)

# A linear model stays below 90 %: the digits are no toy.
run(${ECHOTRAIN} train ${ROOT}/samples/jobs/quickstart.json --set data=${WORK}/data --set out= --set train.seconds=0
    --set train.steps=1500 --set evaluation.every_steps=1500 --set schedule.learning_rate=0.005
    --set "model.layers=[{\"layer\":\"flatten\"},{\"layer\":\"dense\",\"units\":10}]")
string(REGEX MATCH "test accuracy ([0-9]+)" _ "${last_output}")
if(NOT CMAKE_MATCH_1 OR CMAKE_MATCH_1 GREATER_EQUAL 90)
  message(FATAL_ERROR "a linear model should learn something but stay under 90 %: ${last_output}")
endif()
message(STATUS "linear model: ${CMAKE_MATCH_1} %")
