// Declarations shared by the Windows implementations of platform*.h. Paths and texts are UTF-8
// everywhere else.
#pragma once

#ifndef NOMINMAX
#define NOMINMAX
#endif
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <string>
#include <string_view>

namespace etr::platform {

std::wstring wide(std::string_view utf8);
std::string narrow(std::wstring_view text);

// The system's text for an error, without its line break.
std::string system_text(DWORD error);

// Returns a slot of fiber-local storage, whose values `destroy` gets as their threads end. The
// library stays loaded from then on, because threads may end later than the program unloads it.
DWORD thread_slot(void(NTAPI* destroy)(void*));

// Sets errno to what stands for the system's last error.
void set_errno();

}  // namespace etr::platform
