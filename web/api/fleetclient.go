package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Nodes gives one page of nodes, by pool and name; after is the cursor of the page
// before.
func (c *Client) Nodes(ctx context.Context, pool, after string, limit int) (NodeList, error) {
	var out NodeList
	most := ""
	if limit > 0 {
		most = strconv.Itoa(limit)
	}
	return out, c.Call(ctx, http.MethodGet, withQuery(PathNodes, "pool", pool, "after", after, "limit", most), nil, &out)
}

// Node gives one node, by name or number.
func (c *Client) Node(ctx context.Context, node string) (Node, error) {
	return c.aboutNode(ctx, http.MethodGet, PathNode, node, nil)
}

// DrainNode keeps new work off a node.
func (c *Client) DrainNode(ctx context.Context, node string, in Drain) (Node, error) {
	return c.aboutNode(ctx, http.MethodPost, PathDrain, node, in)
}

// UndrainNode lets a node take work again.
func (c *Client) UndrainNode(ctx context.Context, node, key string) (Node, error) {
	return c.aboutNode(ctx, http.MethodPost, PathUndrain, node, Command{Key: key})
}

// MaintainNode plans a node's maintenance, or takes it back.
func (c *Client) MaintainNode(ctx context.Context, node string, in Maintain) (Node, error) {
	return c.aboutNode(ctx, http.MethodPost, PathMaintain, node, in)
}

func (c *Client) aboutNode(ctx context.Context, method, pattern, node string, in any) (Node, error) {
	var out Node
	return out, c.Call(ctx, method, strings.Replace(pattern, "{node}", url.PathEscape(node), 1), in, &out)
}

// NewEnrolToken makes a token that brings nodes into a pool.
func (c *Client) NewEnrolToken(ctx context.Context, in NewEnrolToken) (EnrolToken, error) {
	var out EnrolToken
	return out, c.Call(ctx, http.MethodPost, PathEnrolTokens, in, &out)
}

// Members gives the members of a project, by its path.
func (c *Client) Members(ctx context.Context, project string) (Members, error) {
	var out Members
	return out, c.Call(ctx, http.MethodGet, withQuery(PathMembers, "project", project), nil, &out)
}

// SetMember gives a member of a project a share and a cap.
func (c *Client) SetMember(ctx context.Context, in SetMember) (Members, error) {
	var out Members
	return out, c.Call(ctx, http.MethodPost, PathMembers, in, &out)
}

// Pools lists pools with what they hold now.
func (c *Client) Pools(ctx context.Context) (PoolList, error) {
	var out PoolList
	return out, c.Call(ctx, http.MethodGet, PathPools, nil, &out)
}

// PoolIndices gives a pool's indices now and over a span (SpanDay or SpanWeek).
func (c *Client) PoolIndices(ctx context.Context, pool, span string) (PoolIndexList, error) {
	var out PoolIndexList
	path := strings.Replace(PathPoolIndices, "{pool}", url.PathEscape(pool), 1)
	return out, c.Call(ctx, http.MethodGet, withQuery(path, "span", span), nil, &out)
}
