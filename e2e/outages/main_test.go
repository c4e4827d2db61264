// Package outages_test takes the broker away from a pipeline under load, and
// lets a group expire: each test has a broker of its own.
package outages_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// One waits for the broker to forget, the other for it to come back.
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}
