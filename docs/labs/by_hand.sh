# This machine plays two nodes, each started by hand with its number. Needs beyond/nodes_by_hand.py
export MASTER_ADDR=localhost MASTER_PORT=$((20000 + $$ % 10000)) OMP_NUM_THREADS=1
node() {
    python -m beyond.nodes_by_hand --nodes 2 --gpus 2 --nr "$1" 12 12 | sed "s/^/node $1 | /"
}
node 0 &
node 1 &
wait
