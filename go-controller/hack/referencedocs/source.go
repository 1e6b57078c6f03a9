package main

import (
	"cmp"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// source is what the page needs from the source code in a directory.
type source struct {
	constants []*constantDecl
	functions []nameFunc
	ids       []externalID
	// flows are the exported functions of package bridge that return flows.
	flows []string
	// rows are the names of northbound rows that planners form.
	rows []rowName
	// loose are strings with one of our prefixes that are not constants.
	loose []string

	byName map[string]*constantDecl // "pkg.Name", where pkg is the package's path relative to the directory
}

// constantDecl is a declared constant.
type constantDecl struct {
	pkg, name, file string
	doc             string
	value           constant.Value // nil if it cannot be evaluated
	expr            ast.Expr
	busy            bool
	imports         map[string]string
}

func (c *constantDecl) key() string { return c.pkg + "." + c.name }

// nameFunc is a function of package topology that returns a name.
type nameFunc struct{ name, pattern, doc string }

// externalID is a key of external_ids that a package uses.
type externalID struct{ pkg, key string }

// rowName is an expression that names a row of a table.
type rowName struct{ pkg, table, expr string }

// skipped are directories whose constants are not part of the network: generated models and clients, and test
// harnesses.
var skipped = []string{"generated", "testing", "nb/nbdb", "ovs/vswitchd"}

// parse parses all packages in dir.
func parse(dir string) (*source, error) {
	s := &source{byName: map[string]*constantDecl{}}
	set := token.NewFileSet()
	type parsed struct {
		pkg  string
		file *ast.File
	}
	var files []parsed
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		rel = filepath.ToSlash(rel)
		if d.IsDir() && slices.Contains(skipped, rel) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, parsed{path.Dir(rel), f})
		s.declare(path.Dir(rel), path.Base(rel), f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, c := range s.constants {
		s.evaluate(c)
	}
	for _, f := range files {
		s.inspect(f.pkg, f.file)
	}
	slices.SortFunc(s.ids, func(a, b externalID) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.pkg, b.pkg)) })
	s.ids = slices.Compact(s.ids)
	slices.SortFunc(s.rows, func(a, b rowName) int {
		return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.table, b.table), cmp.Compare(a.expr, b.expr))
	})
	s.rows = slices.Compact(s.rows)
	slices.Sort(s.flows)
	slices.Sort(s.loose)
	return s, nil
}

// declare collects the constants of a file.
func (s *source) declare(pkg, file string, f *ast.File) {
	imports := map[string]string{}
	for _, i := range f.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		if _, below, ok := strings.Cut(p, "/go-controller/pkg/"); ok {
			imports[name] = below
		}
	}
	for _, d := range f.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			continue
		}
		for _, spec := range decl.Specs {
			v := spec.(*ast.ValueSpec)
			doc := v.Doc.Text()
			if doc == "" && !decl.Lparen.IsValid() {
				doc = decl.Doc.Text()
			}
			for i, name := range v.Names {
				if i >= len(v.Values) {
					continue // iota: no constant of the network is numbered
				}
				c := &constantDecl{pkg: pkg, name: name.Name, file: file, doc: doc, expr: v.Values[i], imports: imports}
				s.constants = append(s.constants, c)
				s.byName[c.key()] = c
			}
		}
	}
}

// evaluate evaluates a constant made of literals, constants of this tree, operators and conversions.
func (s *source) evaluate(c *constantDecl) {
	if c.value != nil || c.busy {
		return
	}
	c.busy = true
	defer func() { c.busy = false }()
	c.value = s.valueOf(c.pkg, c.imports, c.expr)
}

func (s *source) valueOf(pkg string, imports map[string]string, e ast.Expr) constant.Value {
	named := func(key string) constant.Value {
		c := s.byName[key]
		if c == nil {
			return nil
		}
		s.evaluate(c)
		return c.value
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0)
	case *ast.Ident:
		return named(pkg + "." + e.Name)
	case *ast.ParenExpr:
		return s.valueOf(pkg, imports, e.X)
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok && imports[x.Name] != "" {
			return named(imports[x.Name] + "." + e.Sel.Name)
		}
	case *ast.CallExpr: // a conversion
		if len(e.Args) == 1 {
			return s.valueOf(pkg, imports, e.Args[0])
		}
	case *ast.BinaryExpr:
		x, y := s.valueOf(pkg, imports, e.X), s.valueOf(pkg, imports, e.Y)
		if x != nil && y != nil && x.Kind() == y.Kind() && (e.Op == token.ADD || e.Op == token.MUL && x.Kind() == constant.Int) {
			return constant.BinaryOp(x, e.Op, y)
		}
	}
	return nil
}

// text returns a value as shown on the page.
func (c *constantDecl) text() string {
	switch {
	case c.value == nil:
		return ""
	case c.value.Kind() == constant.String:
		return constant.StringVal(c.value)
	default:
		return c.value.ExactString()
	}
}

func (c *constantDecl) isInt() bool { return c.value != nil && c.value.Kind() == constant.Int }
func (c *constantDecl) isString() bool {
	return c.value != nil && c.value.Kind() == constant.String
}
