/* What jni.h asks of each system, for Windows on x86-64, as the JNI specification has it. A JDK has
 * that of its own system alone. */
#ifndef ECHOTRAIN_JNI_MD_H
#define ECHOTRAIN_JNI_MD_H

#define JNIEXPORT __declspec(dllexport)
#define JNIIMPORT __declspec(dllimport)
#define JNICALL __stdcall

typedef signed char jbyte;
typedef long jint;
typedef long long jlong;

#endif
