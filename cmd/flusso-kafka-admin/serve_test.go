package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// freePort puts a port that nobody listens on into $PORT: port
func freePort(ts *testscript.TestScript, _ bool, _ []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	ts.Check(err)
	ts.Check(l.Close())
	ts.Setenv("PORT", port)
}

// getURL asks until it is answered with a code, and makes the body the output:
// get CODE URL [HEADER...]. A URL of /events is read up to its first event. For
// https it trusts the certificate in cert.pem.
func getURL(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	if strings.HasPrefix(args[1], "https:") {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(ts.ReadFile("cert.pem")))
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, args[1], nil)
		ts.Check(err)
		for _, h := range args[2:] {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Set(name, value)
		}
		answer, err := client.Do(r)
		last := fmt.Sprint(err)
		if err == nil {
			body := readAnswer(answer)
			last = answer.Status + ": " + body
			if answer.StatusCode == want {
				_, err := io.WriteString(ts.Stdout(), body)
				ts.Check(err)
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			ts.Fatalf("%s: no answer with code %d, the last: %s", args[1], want, last)
		}
	}
}

func readAnswer(answer *http.Response) string {
	defer answer.Body.Close() //nolint:errcheck // what was read counts
	if answer.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(answer.Body)
		return string(body)
	}
	var text []byte
	buffer := make([]byte, 1024)
	for !strings.Contains(string(text), "event: report\n") {
		n, err := answer.Body.Read(buffer)
		text = append(text, buffer[:n]...)
		if err != nil {
			break
		}
	}
	return string(text)
}
