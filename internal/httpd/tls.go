package httpd

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// TLS returns a configuration that serves the certificate of two PEM files and
// takes a renewed one without a restart. Files that do not fit each other are
// an error at once; later, the certificate before them goes on.
func TLS(certFile, keyFile string) (*tls.Config, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile}
	if err := c.load(); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get, NextProtos: []string{"h2", "http/1.1"}}, nil
}

type certificate struct {
	certFile, keyFile string

	mu       sync.Mutex
	pair     *tls.Certificate
	modified [2]time.Time
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed() != c.modified {
		// Half of a renewal may be there: the old pair serves until both are.
		_ = c.read()
	}
	return c.pair, nil
}

func (c *certificate) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read()
}

func (c *certificate) read() error {
	modified := c.changed()
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("read the certificate %s with its key %s: %w", c.certFile, c.keyFile, err)
	}
	c.pair, c.modified = &pair, modified
	return nil
}

func (c *certificate) changed() [2]time.Time {
	var at [2]time.Time
	for i, name := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(name); err == nil {
			at[i] = info.ModTime()
		}
	}
	return at
}
