package staging_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flusso/flusso-kafka/internal/staging"
)

const rootOf = "FLUSSO_STAGING_TEST_ROOT"

// TestMain is, where it is told so, a process that makes a folder and waits to
// be killed.
func TestMain(m *testing.M) {
	root := os.Getenv(rootOf)
	if root == "" {
		os.Exit(m.Run())
	}
	f, err := staging.Make(root, "child")
	if err == nil {
		err = os.WriteFile(filepath.Join(f.Path, "pack"), []byte("half of it"), 0o600)
	}
	text := "made " + f.Path
	if err != nil {
		text = err.Error()
	}
	_, _ = os.Stdout.WriteString(text + "\n")
	<-time.After(time.Hour) // a process that waits for nothing at all is ended as deadlocked
}

// child starts a process that makes a folder, and returns it.
func child(t *testing.T, root string) (cmd *exec.Cmd, dir string) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), rootOf+"="+root)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	dir, made := strings.CutPrefix(strings.TrimSpace(line), "made ")
	if err != nil || !made {
		t.Fatal(line, err)
	}
	return cmd, dir
}

func names(t *testing.T, root string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, filepath.Join(root, e.Name()))
	}
	return names
}

func TestWhatTheDeadLeftGoesAndTheLivingKeepTheirs(t *testing.T) {
	root := t.TempDir()
	living, kept := child(t, root)
	killed, left := child(t, root)
	other := filepath.Join(root, "flusso-of-somebody-else")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	f, err := staging.Make(root, "mine")
	if err != nil {
		t.Fatal(err)
	}
	again, err := staging.Make(root, "mine") // of this process twice
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("what a killed process left is there: %v", err)
	}
	for _, path := range []string{filepath.Join(kept, "pack"), f.Path, again.Path, other} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("what is somebody's was removed: %v", err)
		}
	}
	if err := living.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = living.Wait()
	for _, f := range []*staging.Folder{f, again} {
		if err := f.Remove(); err != nil {
			t.Error(err)
		}
	}
	last, err := staging.Make(root, "mine")
	if err != nil {
		t.Fatal(err)
	}
	if err := last.Remove(); err != nil {
		t.Error(err)
	}
	if got := names(t, root); len(got) != 1 || got[0] != other {
		t.Errorf("in the end there are %q", got)
	}
}

// A process that dies before its folder has its name leaves one that cannot be
// told from that of a process that is about to give it.
func TestAFolderWithoutItsNameGoesAfterADay(t *testing.T) {
	root := t.TempDir()
	old, young := filepath.Join(root, "flusso-unlocked-old-1"), filepath.Join(root, "flusso-unlocked-young-1")
	for _, dir := range []string{old, young} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(old, before, before); err != nil {
		t.Fatal(err)
	}
	f, err := staging.Make(root, "mine")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Remove(); err != nil {
		t.Error(err)
	}
	if got := names(t, root); len(got) != 1 || got[0] != young {
		t.Errorf("left are %q", got)
	}
}

func TestAPlaceThatCannotBeUsedIsNamed(t *testing.T) {
	root := filepath.Join(t.TempDir(), "absent")
	if _, err := staging.Make(root, "mine"); err == nil || !strings.Contains(err.Error(), root) {
		t.Errorf("made a folder nowhere: %v", err)
	}
}
