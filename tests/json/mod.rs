//! Parses JSON, for tests of code that writes it. Panics on invalid input (RFC 8259).

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Value>),
    Object(BTreeMap<String, Value>),
}

impl Value {
    pub fn parse(text: &str) -> Value {
        let mut parser = Parser(text.chars().peekable());
        let value = parser.value();
        parser.space();
        assert_eq!(parser.0.next(), None, "something follows");
        value
    }

    /// Returns an object's value for that key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Object(object) => object.get(key),
            _ => panic!("no object, but {self:?}"),
        }
    }

    #[track_caller]
    pub fn at(&self, key: &str) -> &Value {
        self.get(key)
            .unwrap_or_else(|| panic!("no {key} in {self:?}"))
    }

    #[track_caller]
    pub fn text(&self) -> &str {
        match self {
            Value::Text(text) => text,
            _ => panic!("no text, but {self:?}"),
        }
    }

    #[track_caller]
    pub fn number(&self) -> f64 {
        match self {
            Value::Number(number) => *number,
            _ => panic!("no number, but {self:?}"),
        }
    }

    #[track_caller]
    pub fn list(&self) -> &[Value] {
        match self {
            Value::List(list) => list,
            _ => panic!("no list, but {self:?}"),
        }
    }
}

struct Parser<'a>(Peekable<Chars<'a>>);

impl Parser<'_> {
    fn space(&mut self) {
        while self.0.next_if(|it| " \t\r\n".contains(*it)).is_some() {}
    }

    fn expect(&mut self, text: &str) {
        for character in text.chars() {
            assert_eq!(self.0.next(), Some(character), "of {text:?}");
        }
    }

    fn value(&mut self) -> Value {
        self.space();
        match self.0.peek().expect("a value") {
            'n' => {
                self.expect("null");
                Value::Null
            }
            't' => {
                self.expect("true");
                Value::Bool(true)
            }
            'f' => {
                self.expect("false");
                Value::Bool(false)
            }
            '"' => Value::Text(self.text()),
            '[' => {
                let mut list = Vec::new();
                self.members('[', ']', |parser| list.push(parser.value()));
                Value::List(list)
            }
            '{' => {
                let mut object = BTreeMap::new();
                self.members('{', '}', |parser| {
                    parser.space();
                    let key = parser.text();
                    parser.space();
                    parser.expect(":");
                    let before = object.insert(key.clone(), parser.value());
                    assert_eq!(before, None, "{key} comes twice");
                });
                Value::Object(object)
            }
            _ => self.number(),
        }
    }

    /// Parses the comma-separated members between brackets.
    fn members(&mut self, open: char, close: char, mut member: impl FnMut(&mut Self)) {
        assert_eq!(self.0.next(), Some(open));
        self.space();
        if self.0.next_if_eq(&close).is_some() {
            return;
        }
        loop {
            member(self);
            self.space();
            match self.0.next() {
                Some(',') => {}
                other => return assert_eq!(other, Some(close)),
            }
        }
    }

    fn number(&mut self) -> Value {
        let mut text = String::new();
        while let Some(character) = self.0.next_if(|it| "+-.eE0123456789".contains(*it)) {
            text.push(character);
        }
        let digits = text.trim_start_matches('-');
        let first_two = (digits.chars().next(), digits.chars().nth(1));
        let has_zero = matches!(first_two, (Some('0'), Some('0'..='9')));
        assert!(
            digits.starts_with(|it: char| it.is_ascii_digit()) && !has_zero,
            "no number: {text:?}"
        );
        Value::Number(text.parse().expect("a number"))
    }

    fn text(&mut self) -> String {
        assert_eq!(self.0.next(), Some('"'));
        let mut units = Vec::new();
        loop {
            let character = match self.0.next().expect("the end of a text") {
                '"' => return String::from_utf16(&units).expect("whole characters"),
                '\\' => match self.0.next() {
                    Some('u') => {
                        let digits: String = (0..4).filter_map(|_| self.0.next()).collect();
                        units.push(u16::from_str_radix(&digits, 16).expect("four digits"));
                        continue;
                    }
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('r') => '\r',
                    Some('b') => '\u{8}',
                    Some('f') => '\u{c}',
                    Some(character @ ('"' | '\\' | '/')) => character,
                    other => panic!("no escape: {other:?}"),
                },
                character => {
                    assert!(character >= ' ', "{character:?} is not escaped");
                    character
                }
            };
            units.extend_from_slice(character.encode_utf16(&mut [0; 2]));
        }
    }
}
