package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/feeds"
)

// envChild makes the test binary a node of its own: brokers and a holder name.
const envChild = "GATEWAY_CHILD"

func childOf() string { return os.Getenv(envChild) }

// runChild is a node until it is killed.
func runChild(spec string) {
	if err := serveChild(spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serveChild(spec string) error {
	brokers, name, _ := strings.Cut(spec, " ")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := "http://" + l.Addr().String()
	client, err := feeds.New(feeds.Config{Client: []kgo.Opt{kgo.SeedBrokers(strings.Split(brokers, ",")...)}, Holder: name, Address: address})
	if err != nil {
		return err
	}
	g, err := New(Config{Client: client, Address: address})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(address); err != nil {
		return err
	}
	return g.Run(context.Background(), l)
}

// child is a node that is a process of its own; it can be killed.
func (w *world) child(name string) (n *node, kill func()) {
	w.t.Helper()
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envChild+"="+strings.Join(w.Addrs(), ",")+" "+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	w.t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		w.t.Fatal(err)
	}
	transport := &http.Transport{}
	w.t.Cleanup(transport.CloseIdleConnections)
	n = &node{t: w.t, ask: &http.Client{Transport: transport}}
	if err := json.Unmarshal([]byte(line), &n.url); err != nil {
		w.t.Fatal(err)
	}
	return n, kill
}
