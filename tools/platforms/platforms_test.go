package platforms_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/go/packages"
)

// build is how .goreleaser.yaml builds.
type build struct {
	Main    string   `yaml:"main"`
	Env     []string `yaml:"env"`
	Flags   []string `yaml:"flags"`
	Ldflags []string `yaml:"ldflags"`
	GOOS    []string `yaml:"goos"`
	GOARCH  []string `yaml:"goarch"`
}

// root is the folder of the repository.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func readBuild(t *testing.T) build {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root(t), ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Builds []build `yaml:"builds"`
	}
	if err := yaml.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Builds) != 1 {
		t.Fatalf("%d builds in .goreleaser.yaml, these tests know of one", len(file.Builds))
	}
	return file.Builds[0]
}

// problems type-checks packages as they are on one platform. It reads sources and compiles nothing, which takes
// seconds instead of a minute; bodies of other modules' functions are not read.
func problems(t *testing.T, b build, goos, goarch, pattern string, overlay map[string][]byte) (found []string) {
	t.Helper()
	pkgs, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedModule,
		Context: t.Context(), Dir: root(t), Overlay: overlay,
		Env: append(append(os.Environ(), b.Env...), "GOOS="+goos, "GOARCH="+goarch, "GOWORK=off"),
	}, pattern)
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) == 0 {
		t.Fatalf("no package is %s", pattern)
	}
	packages.Visit(pkgs, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			found = append(found, e.Error())
		}
	})
	return found
}

// TestEveryPlatformCompiles: signals, file locks and terminals differ between
// systems.
func TestEveryPlatformCompiles(t *testing.T) {
	b := readBuild(t)
	for _, want := range []string{"linux", "darwin", "windows"} {
		if !slices.Contains(b.GOOS, want) {
			t.Errorf(".goreleaser.yaml does not build for %s", want)
		}
	}
	for _, goos := range b.GOOS {
		for _, goarch := range b.GOARCH {
			t.Run(goos+"-"+goarch, func(t *testing.T) {
				for _, problem := range problems(t, b, goos, goarch, "./...", nil) {
					t.Error(problem)
				}
			})
		}
	}
}

// TestFindsWhatDoesNotCompile: a call that one system does not have is found
// there.
func TestFindsWhatDoesNotCompile(t *testing.T) {
	b := readBuild(t)
	file := filepath.Join(root(t), "internal", "embedded", "lock_everywhere.go")
	overlay := map[string][]byte{file: []byte("package embedded\n\nimport \"syscall\"\n\nfunc lockEverywhere(fd int) error { return syscall.Flock(fd, syscall.LOCK_EX) }\n")}
	if found := problems(t, b, "linux", "amd64", "./internal/embedded", overlay); len(found) > 0 {
		t.Errorf("on linux it compiles, and yet: %s", strings.Join(found, "\n"))
	}
	if found := problems(t, b, "windows", "amd64", "./internal/embedded", overlay); !slices.ContainsFunc(found, func(p string) bool { return strings.Contains(p, "Flock") }) {
		t.Errorf("windows has no Flock, but what is found is %q", found)
	}
}

// TestSameBytesWhereverItIsBuilt: two copies of the tree in different folders
// give one binary.
func TestSameBytesWhereverItIsBuilt(t *testing.T) {
	b := readBuild(t)
	var sums []string
	for _, name := range []string{"here", "elsewhere"} {
		dir := copyTree(t, name)
		binary := filepath.Join(t.TempDir(), "binary")
		args := append([]string{"build"}, b.Flags...)
		args = append(args, "-buildvcs=false", "-ldflags="+strings.Join(b.Ldflags, " "), "-o", binary, b.Main)
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = dir, append(append(os.Environ(), b.Env...), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		content, err := os.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(dir)) {
			t.Errorf("the binary names the folder it was built in, %s", dir)
		}
		sum := sha256.Sum256(content)
		sums = append(sums, hex.EncodeToString(sum[:]))
	}
	if sums[0] != sums[1] {
		t.Errorf("two builds in two folders differ: %v", sums)
	}
}

// copyTree copies what git knows or would add.
func copyTree(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	cmd.Dir = root(t)
	list, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	to := filepath.Join(t.TempDir(), name)
	for file := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root(t), file))
		if os.IsNotExist(err) {
			continue // deleted, and not staged
		}
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(to, file)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}
