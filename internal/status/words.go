package status

import (
	"fmt"
	"strings"
)

// Age shows seconds in the unit that suits them.
func Age(seconds float64) string {
	switch {
	case seconds < 60:
		return fmt.Sprintf("%.1f s", seconds)
	case seconds < 60*60:
		return fmt.Sprintf("%.1f min", seconds/60)
	case seconds < 48*60*60:
		return fmt.Sprintf("%.1f h", seconds/60/60)
	}
	return fmt.Sprintf("%.1f d", seconds/60/60/24)
}

// Size shows bytes in the unit that suits them.
func Size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// Count is a number and what it counts, in the plural where that is due.
func Count(n uint64, one string) string {
	switch {
	case n == 1:
		return "1 " + one
	case strings.HasSuffix(one, "ch"):
		return fmt.Sprintf("%d %ses", n, one)
	}
	return fmt.Sprintf("%d %ss", n, one)
}
