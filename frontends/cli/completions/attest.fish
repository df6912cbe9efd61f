# SPDX-License-Identifier: MIT
# Completion of the attest command for fish. Option names are read from the program's own --help.

set -l commands demo exact check attend trace why diff probe verify bench inspect
complete -c attest -n "not __fish_seen_subcommand_from $commands" -f -a "$commands"
complete -c attest -n "not __fish_seen_subcommand_from $commands" -l help -d 'Print help'
complete -c attest -n "not __fish_seen_subcommand_from $commands" -l version -d 'Print the version'
complete -c attest -n "__fish_seen_subcommand_from exact" -f -a "matmul softmax attention block"

function __attest_options
    set -l words (commandline -opc)
    attest $words[2] --help 2>/dev/null | string match -ra -- '--[a-z][a-z-]*' | sort -u
end
complete -c attest -n "__fish_seen_subcommand_from $commands; \
    and string match -q -- '-*' (commandline -ct)" -f -a "(__attest_options)"

complete -c attest -l causal -a "top-left bottom-right none" -n "__fish_seen_subcommand_from attend check trace why"
complete -c attest -l empty-row -x -a "error zero nan" -n "__fish_seen_subcommand_from attend check trace why"
complete -c attest -l layout -x -a "bhtd bthd packed lbe" -n "__fish_seen_subcommand_from attend check trace why"
complete -c attest -l precision -x -a "f64 f32 tf32 f16 bf16" -n "__fish_seen_subcommand_from check"
complete -c attest -l scores-are -x -a "dot scaled capped biased masked" -n "__fish_seen_subcommand_from check"
complete -c attest -l output-layout -x -a "bhtd bthd packed lbe" -n "__fish_seen_subcommand_from check"
complete -c attest -l norm -x -a "layer rms" -n "__fish_seen_subcommand_from check"
complete -c attest -l placement -x -a "post pre sandwich" -n "__fish_seen_subcommand_from check"
complete -c attest -l activation -x -a "relu gelu gelu-tanh gelu-quick silu" -n "__fish_seen_subcommand_from check"
complete -c attest -l packing -x -a "blocked by-head interleaved" -n "__fish_seen_subcommand_from check"
complete -c attest -l gate-half -x -a "first second" -n "__fish_seen_subcommand_from check"
complete -c attest -l weights-are -x -a "input-output output-input" -n "__fish_seen_subcommand_from check"
complete -c attest -l rope -x -a "half interleaved" -n "__fish_seen_subcommand_from check"
complete -c attest -l dtype -x -a "f64 f32 f16 bf16" -n "__fish_seen_subcommand_from attend"
complete -c attest -l isa -x -a "portable avx2 avx512 avx512bf16 amx" -n "__fish_seen_subcommand_from attend bench"
complete -c attest -l features -x -a "causal top-left bottom-right window mask bias grouped alibi sink softcap scale rope rope-interleaved cache lengths packed dropout gradients" -n "__fish_seen_subcommand_from probe"
complete -c attest -l snippet -x -a "numpy pytorch jax onnxruntime cpp" -n "__fish_seen_subcommand_from probe"
complete -c attest -l workbook -x -a "two-position block" -n "__fish_seen_subcommand_from trace why"
