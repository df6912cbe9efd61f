# SPDX-License-Identifier: MIT
# Completion of the attest command for bash. Option names are read from the program's own --help,
# so that they cannot fall behind it; only the words that options take are listed here.

_attest() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local program=${COMP_WORDS[0]} command="" choices="" i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} != -* ]]; then
      command=${COMP_WORDS[i]}
      break
    fi
  done

  if [[ -z $command ]]; then
    choices="demo exact check attend trace why diff probe verify bench inspect --help --version"
  elif [[ $command == exact && $word != -* ]]; then
    choices="matmul softmax attention block"
  else
    case $previous in
      --causal) choices="top-left bottom-right none" ;;
      --empty-row) choices="error zero nan" ;;
      --layout) choices="bhtd bthd packed lbe" ;;
      --isa) [[ $command == inspect ]] || choices="portable avx2 avx512 avx512bf16 amx" ;;
      --precision) choices="f64 f32 tf32 f16 bf16" ;;
      --scores-are) choices="dot scaled capped biased masked" ;;
      --output-layout) choices="bhtd bthd packed lbe" ;;
      --rope) choices="half interleaved" ;;
      --norm) choices="layer rms" ;;
      --placement) choices="post pre sandwich" ;;
      --activation) choices="relu gelu gelu-tanh gelu-quick silu" ;;
      --packing) choices="blocked by-head interleaved" ;;
      --gate-half) choices="first second" ;;
      --weights-are) choices="input-output output-input" ;;
      --explain) choices=$("$program" check --list 2>/dev/null |
                             grep -oE '^[a-z0-9_]+\.[a-zA-Z0-9_.+]+') ;;
      --dtype) choices="f64 f32 f16 bf16" ;;
      --features) choices="causal top-left bottom-right window mask bias grouped alibi sink softcap
                           scale rope rope-interleaved cache lengths packed dropout gradients" ;;
      --snippet) choices="numpy pytorch jax onnxruntime cpp" ;;
      --workbook) choices="two-position block" ;;
      --convention) choices="pytorch-sdpa pytorch-mha flash-attention flex-attention jax onnx-23
                             onnx-24 onnx-25 onnxruntime-mha onnxruntime-gqa keras ggml mlx" ;;
    esac
    if [[ -z $choices && $word == -* ]]; then
      choices=$("$program" "$command" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*' | sort -u)
    fi
  fi
  mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$word")
  if [[ -z $choices ]]; then  # a tensor file
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -F _attest attest
