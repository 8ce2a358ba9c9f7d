module github.com/redrive/redrive

go 1.26
