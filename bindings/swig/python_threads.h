// How the extension gives the interpreter's lock up and takes it, in the place of SWIG's own way.
//
// Up to 3.13 CPython ends a thread that asks for the lock when the interpreter is about to go: pthread_exit unwinds its stack. That of
// a daemon thread within a call of the library's has frames of C++ that must not be unwound, and SWIG's destructor asks for the lock
// once more: the program would abort. Here such a thread waits for the end of the process, as it does from CPython 3.14 on.
#pragma once

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>

#include <chrono>
#include <thread>

#define SWIG_PYTHON_NO_USE_GIL  // what follows takes its place
#define SWIG_PYTHON_THREAD_BEGIN_BLOCK echotrain::python::Locked _swig_thread_block
#define SWIG_PYTHON_THREAD_END_BLOCK _swig_thread_block.end()
#define SWIG_PYTHON_THREAD_BEGIN_ALLOW echotrain::python::Unlocked _swig_thread_allow
#define SWIG_PYTHON_THREAD_END_ALLOW _swig_thread_allow.end()

namespace echotrain {
namespace python {

[[noreturn]] inline void wait_for_the_end() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

// What `ask` gives, unless the thread is to be ended in it.
template <typename Ask>
auto ask_for_lock(Ask ask) noexcept {
  try {
    return ask();
  } catch (...) {  // by pthread_exit: leaving this block would end the program
    wait_for_the_end();
  }
}

// The thread has the lock.
class Locked {
 public:
  Locked() : state_(ask_for_lock(&ask)) {}
  ~Locked() { end(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  void end() {
    if (has_it_) PyGILState_Release(state_);
    has_it_ = false;
  }

 private:
  static PyGILState_STATE ask() {
    const bool is_librarys = PyGILState_GetThisThreadState() == nullptr;
    if (is_librarys && !Py_IsInitialized()) wait_for_the_end();  // nothing is left to be locked
    return PyGILState_Ensure();
  }

  const PyGILState_STATE state_;
  bool has_it_ = true;
};

// The thread, which has the lock, leaves it to others.
class Unlocked {
 public:
  Unlocked() : thread_(PyEval_SaveThread()) {}
  ~Unlocked() { end(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  void end() {
    if (thread_) ask_for_lock([this] { PyEval_RestoreThread(thread_); });
    thread_ = nullptr;
  }

 private:
  PyThreadState* thread_;
};

}  // namespace python
}  // namespace echotrain
