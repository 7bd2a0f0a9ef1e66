# Two shells of one machine play two nodes. Each sources the variables, then starts torchrun.
# It needs multinode.py, launch/before.py, launch/restarts.sh and launch/torchrun_env.sh
port=$((20000 + $$ % 10000)) # not a fixed one, since other programs run meanwhile
shell() {
    mkdir "$1" && cd "$1" || exit
    LAUNCH=../launch ENDPOINT=localhost:$port . ../launch/torchrun_env.sh
    torchrun --nnodes=2 ../multinode.py 3 3 | sed -u "s/^/$1 | /"
}
shell first &
shell second &
wait
