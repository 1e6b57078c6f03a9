package page

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// program is Debian's name of headless Chromium.
const program = "chromium-headless-shell"

// browser is a tab.
type browser struct {
	ctx context.Context

	mu    sync.Mutex
	wrong []string // things that the page must not do
	asked []string // URLs that it requested
}

// open opens a page in a new browser, which ends with the test.
func open(t *testing.T, url string, further ...chromedp.ExecAllocatorOption) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, // Chromium has no sandbox for root
		chromedp.WindowSize(1200, 1000))
	options = append(options, further...)
	// The test's own context ends before the browser can be closed.
	ctx, end := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, _ = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("end the browser: %v", err)
		}
		end()
		if c := chromedp.FromContext(ctx); c.Allocator != nil {
			c.Allocator.Wait()
		}
	})
	b := &browser{ctx: ctx}
	chromedp.ListenTarget(ctx, b.note)
	b.do(t, log.Enable(), network.Enable(), runtime.Enable(), accessibility.Enable(), chromedp.Navigate(url))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		origin, _, _ := strings.Cut(url, "#")
		for _, a := range b.asked {
			if !strings.HasPrefix(a, origin) {
				t.Errorf("the page asks %s", a)
			}
		}
		if len(b.wrong) > 0 {
			t.Errorf("the browser complains:\n%s", strings.Join(b.wrong, "\n"))
		}
	})
	return b
}

// note records the browser's events about the page.
func (b *browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	case *runtime.EventExceptionThrown:
		b.wrong = append(b.wrong, e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		// If a request is answered with an error, that is not the page's fault.
		if e.Entry.Source != log.SourceNetwork {
			b.wrong = append(b.wrong, fmt.Sprintf("%s: %s", e.Entry.Source, e.Entry.Text))
		}
	}
}

func (b *browser) do(t *testing.T, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// text returns the visible text of a part of the page; it is empty if the part is hidden.
func (b *browser) text(selector string) (string, error) {
	var text string
	quoted, err := json.Marshal(selector)
	if err != nil {
		return "", err
	}
	err = chromedp.Run(b.ctx, chromedp.Evaluate(fmt.Sprintf("[...document.querySelectorAll(%s)].filter((e) => e.checkVisibility()).map((e) => e.innerText).join('\\n')", quoted), &text))
	return text, err
}

// shows returns an error unless a part of the page shows all of the given texts.
func (b *browser) shows(selector string, want ...string) error {
	text, err := b.text(selector)
	if err != nil {
		return err
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			return fmt.Errorf("%s shows %q, without %q", selector, text, w)
		}
	}
	return nil
}

// names fails the test if a control has no name for screen readers.
func (b *browser) names(t *testing.T) {
	t.Helper()
	var nodes []*accessibility.Node
	b.do(t, chromedp.ActionFunc(func(ctx context.Context) (err error) {
		nodes, err = accessibility.GetFullAXTree().Do(ctx)
		return err
	}))
	value := func(v *accessibility.Value) (text string) {
		if v != nil {
			_ = json.Unmarshal(v.Value, &text) // values other than strings are ignored
		}
		return text
	}
	seen := 0
	for _, n := range nodes {
		switch role := value(n.Role); role {
		case "button", "link", "textbox", "searchbox", "combobox", "region", "table":
			seen++
			if !n.Ignored && value(n.Name) == "" && role != "table" {
				t.Errorf("a %s has no name", role)
			}
		}
	}
	if seen == 0 {
		t.Error("nothing can be operated")
	}
}

// screenshot saves pictures of the whole page in both themes if $PAGE_SCREENSHOTS is set.
func (b *browser) screenshot(t *testing.T, name string) {
	t.Helper()
	dir := os.Getenv("PAGE_SCREENSHOTS")
	if dir == "" {
		return
	}
	for _, theme := range []string{"light", "dark"} {
		var picture []byte
		b.do(t, emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}),
			chromedp.Evaluate("scrollTo(0, 0)", nil), chromedp.FullScreenshot(&picture, 100)) // as PNG
		if err := os.WriteFile(filepath.Join(dir, name+"-"+theme+".png"), picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
