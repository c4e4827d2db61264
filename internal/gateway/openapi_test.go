package gateway

import (
	"sync"
)

// seen are the statuses that operations answered with in these tests.
var seen = struct {
	sync.Mutex
	of map[string]map[int]bool
}{of: make(map[string]map[int]bool)}

func saw(method, path string, status int) {
	seen.Lock()
	defer seen.Unlock()
	key := method + " " + path
	if seen.of[key] == nil {
		seen.of[key] = make(map[int]bool)
	}
	seen.of[key][status] = true
}
