package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine is what was measured on, by what it is.
type Machine struct {
	Cores    int    `json:"cores"`
	MemoryGB int    `json:"memory_gb,omitempty"` // 0 where it is not known
	System   string `json:"system"`              // "linux/amd64"
	Go       string `json:"go"`                  // "go1.26.8"
}

// ThisMachine describes the one that this process runs on.
func ThisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	// Other systems than Linux have no such file, and say nothing of memory.
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kib int
		if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kib); err == nil {
			m.MemoryGB = (kib + 1<<19) >> 20
		}
	}
	return m
}

// String says it in a line.
func (m Machine) String() string {
	parts := []string{fmt.Sprintf("%d cores", m.Cores)}
	if m.MemoryGB > 0 {
		parts = append(parts, fmt.Sprintf("%d GiB of memory", m.MemoryGB))
	}
	return strings.Join(append(parts, m.System, m.Go), ", ")
}
