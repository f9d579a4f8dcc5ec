# Writes OUT, the commit of SOURCE and the tree hashes of its launch path as macros, if they are
# others than before. The commit's time stands before its hash, so that versions sort. Packages take
# no "-".
set(ENV{TZ} UTC)
execute_process(COMMAND git log -1 --date=format-local:%Y%m%d.%H%M%S --format=git%cd
                WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE time ERROR_QUIET
                OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND git describe --always --dirty=.dirty --exclude=*
                WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE hash ERROR_QUIET
                OUTPUT_STRIP_TRAILING_WHITESPACE)
set(commit unknown)
if(time AND hash)
  set(commit ${time}.${hash})
endif()
set(trees)
foreach(folder shim ipc daemon/core daemon/server policies)
  execute_process(COMMAND git rev-parse --verify HEAD:./${folder} WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE hash ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(hash)
    string(APPEND trees " ${folder} ${hash}")
  endif()
endforeach()
string(STRIP "${trees}" trees)
file(CONFIGURE OUTPUT ${OUT} CONTENT
     "#define HEDDLE_COMMIT \"${commit}\"\n#define HEDDLE_TREES \"${trees}\"\n")
