package main

import (
	"bytes"
	"go/ast"
	"go/constant"
	"go/printer"
	"go/token"
	"strings"
)

// inspect notes what a file uses: keys of external_ids, names of rows, functions that return names or flows, and
// our strings that are not constants.
func (s *source) inspect(pkg string, f *ast.File) {
	imports := map[string]string{}
	for _, c := range s.constants {
		if c.pkg == pkg {
			for k, v := range c.imports {
				imports[k] = v
			}
		}
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			s.function(pkg, fn)
		}
	}
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok != token.VAR {
			continue // constants are handled separately
		}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if k, ok := n.Key.(*ast.Ident); ok && k.Name == "ExternalIDs" {
					if m, ok := n.Value.(*ast.CompositeLit); ok {
						for _, e := range m.Elts {
							s.id(pkg, imports, e.(*ast.KeyValueExpr).Key)
						}
					}
				}
			case *ast.IndexExpr:
				if x, ok := n.X.(*ast.SelectorExpr); ok && x.Sel.Name == "ExternalIDs" {
					s.id(pkg, imports, n.Index)
				}
			case *ast.CompositeLit:
				s.row(pkg, n)
			case *ast.CallExpr:
				s.set(pkg, n)
			case *ast.AssignStmt:
				s.assigned(pkg, n)
			case *ast.BasicLit:
				if v := strings.Trim(n.Value, "`\""); n.Kind == token.STRING && ours(v) {
					s.loose = append(s.loose, pkg+": "+v)
				}
			}
			return true
		})
	}
}

// ours reports whether a string is the name of a chain, or a key of annotations, labels or external_ids.
func ours(v string) bool {
	for _, prefix := range []string{"OVN-KUBE-", "k8s.ovn.org/", "egress-service.k8s.ovn.org/", "ovn-kube-"} {
		if strings.HasPrefix(v, prefix) && !strings.Contains(v, " ") {
			return true
		}
	}
	return false
}

func (s *source) id(pkg string, imports map[string]string, e ast.Expr) {
	if v := s.valueOf(pkg, imports, e); v != nil && v.Kind() == constant.String {
		s.ids = append(s.ids, externalID{pkg, constant.StringVal(v)})
	}
}

// row notes the name in a literal of a northbound row, unless package topology forms the name or it comes from
// elsewhere.
func (s *source) row(pkg string, lit *ast.CompositeLit) {
	sel, ok := lit.Type.(*ast.SelectorExpr)
	if !ok {
		return
	}
	if x, ok := sel.X.(*ast.Ident); !ok || x.Name != "nbdb" {
		return
	}
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if k, ok := kv.Key.(*ast.Ident); !ok || k.Name != "Name" {
			continue
		}
		switch v := kv.Value.(type) {
		case *ast.CallExpr:
			if f, ok := v.Fun.(*ast.SelectorExpr); ok {
				if x, ok := f.X.(*ast.Ident); ok && x.Name == "topology" {
					return
				}
			}
		case *ast.SelectorExpr:
			if x, ok := v.X.(*ast.Ident); ok && x.Name == "topology" {
				return
			}
		}
		s.rows = append(s.rows, rowName{pkg, sel.Sel.Name, text(kv.Value)})
	}
}

// set notes the address sets that are named in calls of setName.
func (s *source) set(pkg string, call *ast.CallExpr) {
	if f, ok := call.Fun.(*ast.Ident); ok && f.Name == "setName" && len(call.Args) > 0 {
		s.rows = append(s.rows, rowName{pkg, "AddressSet", "setName(" + text(call.Args[0]) + ")"})
	}
}

// assigned notes a name that is assigned to a load balancer after its creation.
func (s *source) assigned(pkg string, a *ast.AssignStmt) {
	if sel, ok := a.Lhs[0].(*ast.SelectorExpr); ok && sel.Sel.Name == "Name" {
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == "lb" {
			s.rows = append(s.rows, rowName{pkg, "LoadBalancer", text(a.Rhs[0])})
		}
	}
}

func text(n ast.Node) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, token.NewFileSet(), n); err != nil {
		return err.Error()
	}
	return b.String()
}

// function notes functions of topology that return a name, and functions of bridge that return flows.
func (s *source) function(pkg string, fn *ast.FuncDecl) {
	if !fn.Name.IsExported() || fn.Recv != nil || fn.Type.Results == nil || len(fn.Type.Results.List) != 1 {
		return
	}
	result := text(fn.Type.Results.List[0].Type)
	switch {
	case pkg == "bridge" && (result == "[]host.Flow" || result == "host.Flow"):
		s.flows = append(s.flows, fn.Name.Name)
	case pkg == "topology" && result == "string" && len(fn.Body.List) == 1:
		ret, ok := fn.Body.List[0].(*ast.ReturnStmt)
		if !ok {
			return
		}
		for _, p := range fn.Type.Params.List {
			if t, ok := p.Type.(*ast.Ident); !ok || t.Name != "string" {
				return
			}
		}
		if pattern, ok := s.pattern(ret.Results[0]); ok {
			s.functions = append(s.functions, nameFunc{fn.Name.Name, pattern, fn.Doc.Text()})
		}
	}
}

// pattern returns a string expression with its parameters in angle brackets. Calls of other functions become
// "{Name}" until all are known.
func (s *source) pattern(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		x, okX := s.pattern(e.X)
		y, okY := s.pattern(e.Y)
		return x + y, okX && okY && e.Op == token.ADD
	case *ast.CallExpr:
		if f, ok := e.Fun.(*ast.Ident); ok {
			return "{" + f.Name + "}", true
		}
	case *ast.Ident:
		if c := s.byName["topology."+e.Name]; c != nil {
			return c.text(), true
		}
		return "<" + e.Name + ">", true
	case *ast.BasicLit:
		v := s.valueOf("topology", nil, e)
		return constant.StringVal(v), true
	}
	return "", false
}
